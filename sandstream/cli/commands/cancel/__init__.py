"""``sandstream cancel``: stop a run."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command


def add_parser(commands: Any) -> None:
    cancel = add_command(
        commands,
        "cancel",
        "stop a run and all runs that it started",
        '  sandstream cancel RUN\n  sandstream cancel RUN --after-turn --reason "no longer needed"',
        module="commands.cancel.command",
        json="the run as JSON",
    )
    cancel.add_argument("run", metavar="RUN", help="the run's id")
    cancel.add_argument("--after-turn", action="store_true", help="let the current turn finish")
    cancel.add_argument("--reason", default="", metavar="TEXT", help="kept in the run's log")
