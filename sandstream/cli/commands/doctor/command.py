"""``sandstream doctor``: checks the installation and says what to do. Starts no server."""

from __future__ import annotations

import argparse
import textwrap

from sandstream_bus.counts import numbered

from sandstream.cli.commands.doctor.bus import check_bus
from sandstream.cli.commands.doctor.checks import Check, check_machine
from sandstream.cli.commands.doctor.sandboxes import check_sandboxes
from sandstream.cli.exits import Exit
from sandstream.cli.session import put_json, run_async, say
from sandstream.cli.terminal.render import Screen, clean, out, pad
from sandstream.settings import Settings

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_NAMES = 12
_MARGIN = 13 + _NAMES
"""The column in which findings begin: after the mark, the state and the name."""
_LEAST_ROOM = 30
_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def main(arguments: argparse.Namespace) -> int:
    return run_async(_examine(arguments), debug=arguments.debug)


async def _examine(arguments: argparse.Namespace) -> int:
    settings = Settings.from_env()
    screen = out()
    worst = {"ok": 0, "warning": 0, "problem": 0}
    for check in [*await check_machine(settings), *await check_sandboxes(settings)]:
        _put(screen, check, worst, as_json=arguments.json)
    for check in await check_bus(settings):
        _put(screen, check, worst, as_json=arguments.json)
    say(
        "all is well"
        if worst["problem"] == worst["warning"] == 0
        else f"{numbered(worst['problem'], 'problem')}, {numbered(worst['warning'], 'warning')}"
    )
    return Exit.FAILED if worst["problem"] else Exit.OK


def _put(screen: Screen, check: Check, worst: dict[str, int], *, as_json: bool) -> None:
    worst[check.state] += 1
    if as_json:
        put_json(check)
        return
    style = _STYLES[check.state]
    mark = screen.paint(f"{_MARKS[check.state]} {pad(check.state, 7)}", style)
    first, *more = _lines(screen, clean(check.found))
    screen.line(f"{mark}  {pad(check.name, _NAMES)}  {first}")
    for line in more:
        screen.line(f"{' ' * _MARGIN}{line}")
    for line in _lines(screen, f"→ {clean(check.todo)}") if check.todo else ():
        screen.line(f"{' ' * _MARGIN}{screen.paint(line, style)}")


def _lines(screen: Screen, text: str) -> list[str]:
    """The text in lines that fit beside the names."""
    room = max(screen.width - _MARGIN, _LEAST_ROOM)
    return textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False) or [""]
