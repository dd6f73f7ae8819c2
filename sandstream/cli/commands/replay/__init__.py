"""``sandstream replay``: the stored events of a run, in their own time."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, seconds


def add_parser(commands: Any) -> None:
    replay = add_command(
        commands,
        "replay",
        "replay the stored events of a run and its child runs at their original pace",
        "  sandstream replay RUN\n"
        "  sandstream replay RUN --speed 4\n"
        "  sandstream replay RUN --instant --json",
        module="commands.replay.command",
        json="JSON lines",
    )
    replay.add_argument("run", metavar="RUN", help="the run's id")
    pace = replay.add_mutually_exclusive_group()
    pace.add_argument("--speed", type=seconds, default=1.0, metavar="X", help="X times as fast (1)")
    pace.add_argument("--instant", action="store_true", help="without waiting")
