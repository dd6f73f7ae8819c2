"""``sandstream parked``: messages that could not be handled."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, positive


def add_parser(commands: Any) -> None:
    parked = add_command(
        commands,
        "parked",
        "messages that no actor could process: list, show, publish again, drop",
        "  sandstream parked\n"
        "  sandstream parked show harness-main/42\n"
        "  sandstream parked redrive harness-main/42",
        module="commands.parked.command",
        json="JSON lines, or one object",
    )
    parked.add_argument(
        "action",
        nargs="?",
        default="ls",
        choices=["ls", "show", "redrive", "drop"],
        metavar="ls|show|redrive|drop",
        help="list them (ls), show one, publish one again, drop one",
    )
    parked.add_argument("id", nargs="?", metavar="ID", help="as `parked ls` shows it")
    parked.add_argument(
        "--limit", type=positive, default=100, metavar="N", help="ls: the newest N (100)"
    )
