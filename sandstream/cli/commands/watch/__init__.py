"""``sandstream watch``: one run live, or all of them in a live table."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, whole


def add_parser(commands: Any) -> None:
    watch = add_command(
        commands,
        "watch",
        "follow one run and those below it to its end, or all runs in a live table",
        "  sandstream watch                   all runs; Ctrl-C ends\n"
        "  sandstream watch RUN               its events from the start; its exit code\n"
        "  sandstream watch RUN --after 120   only what came after sequence 120",
        module="commands.watch.command",
        json="JSON lines: events of the run, or a summary for each change of any run",
    )
    watch.add_argument("run", nargs="?", metavar="RUN", help="the run's id")
    watch.add_argument(
        "--after", type=whole, default=0, metavar="SEQ", help="skip events up to sequence SEQ"
    )
