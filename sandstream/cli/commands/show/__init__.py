"""``sandstream show``: one run as a report, as JSON or as a page."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command


def add_parser(commands: Any) -> None:
    show = add_command(
        commands,
        "show",
        "show a run: summary, waterfall, conversation, sandboxes, child runs",
        "  sandstream show RUN\n"
        "  sandstream show RUN --all --events\n"
        "  sandstream show RUN --html run.html      a page to share\n"
        "  sandstream show RUN --json | jq .spans",
        module="commands.show.command",
        json="one object: summary, tree, conversation, events, spans",
    )
    show.add_argument("run", metavar="RUN", help="the run's id")
    show.add_argument("--all", action="store_true", help="show everything in full")
    show.add_argument("--events", action="store_true", help="also the table of its events")
    show.add_argument("--html", metavar="FILE", help="write an HTML page instead (-: to stdout)")
    show.add_argument(
        "--force", action="store_true", help="with --html: overwrite any existing FILE"
    )
