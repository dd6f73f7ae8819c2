"""``sandstream tui``: the terminal UI."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, add_flag


def add_parser(commands: Any) -> None:
    tui = add_command(
        commands,
        "tui",
        "work with sessions and runs in the terminal",
        "  sandstream tui           all sessions and runs, live\n"
        "  sandstream tui SESSION   open a session or run at once\n"
        "  sandstream tui --demo    a private installation with a scripted model, no key",
        module="commands.tui.command",
    )
    tui.add_argument("id", nargs="?", metavar="ID", help="the session or run to open")
    add_flag(tui, "--demo", help="show everything with a scripted model; leaves nothing behind")
    tui.add_argument("--theme", metavar="NAME", help="the theme, such as dune, paper or nord")
