"""``sandstream runs``: list and search runs."""

from __future__ import annotations

import argparse
from typing import Any

from sandstream.cli.grammar import Since, add_command, positive, since

STATUSES = [
    *("running", "waiting", "completed", "failed"),
    *("cancelled", "max_turns", "guardrail", "budget"),
]


def add_parser(commands: Any) -> None:
    runs = add_command(
        commands,
        "runs",
        "list runs, newest first",
        "  sandstream runs --limit 100\n"
        "  sandstream runs --tree               also those of agents called as tools\n"
        "  sandstream runs --status failed --json | jq -r .run_id\n"
        "  sandstream runs --agent assistant --since 2h --text refund\n"
        "  sandstream runs --metadata customer=17 --since 2026-01-31 --until 2026-02-01",
        module="commands.runs.command",
        json="JSON lines",
    )
    runs.add_argument("--limit", type=positive, default=20, metavar="N", help="at most N (20)")
    runs.add_argument("--tree", action="store_true", help="also runs that other runs started")
    wanted = runs.add_argument_group("only runs that fit all of these")
    wanted.add_argument(
        "--status",
        choices=STATUSES,
        metavar="S",
        help=", ".join(STATUSES),
    )
    wanted.add_argument(
        "--agent",
        type=said,
        metavar="NAME",
        help="whose first or last agent has this name",
    )
    wanted.add_argument(
        "--since",
        type=since,
        metavar="WHEN",
        help="that began since: 90s, 30m, 24h, 7d or 2w ago, or a time such as 2026-01-31T12:00 "
        "(local time, unless it names a zone)",
    )
    wanted.add_argument(
        "--until", type=moment, metavar="WHEN", help="that began before; as --since"
    )
    wanted.add_argument(
        "--text",
        type=said,
        metavar="TEXT",
        help="with this text in the input or output; case is ignored",
    )
    wanted.add_argument(
        "--metadata",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with this in their metadata; repeatable",
    )
    runs.add_argument(
        "--all",
        action="store_true",
        help="search the whole log, which may take long; without it, a search looks at "
        "the last 30,000 events, and at older runs that this machine has traces of",
    )


def moment(text: str) -> Since:
    """A time span before now, or a date."""
    if text == "all":
        raise argparse.ArgumentTypeError("'all' is not a time; omit --until")
    return since(text)


def said(text: str) -> str:
    """A text that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it must not be empty")
    return text


def pair(text: str) -> tuple[str, str]:
    """``key=value``."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value
