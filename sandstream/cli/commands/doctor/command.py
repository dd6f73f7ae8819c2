"""``sandstream doctor``: is this installation well, and what to do if not. Starts no server."""

from __future__ import annotations

import argparse

from sandstream.cli.checks import Check, check_machine
from sandstream.cli.checks_bus import check_bus
from sandstream.cli.exits import Exit
from sandstream.cli.render import Screen, out, pad
from sandstream.cli.session import put_json, run_async, say
from sandstream.settings import Settings

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def main(arguments: argparse.Namespace) -> int:
    return run_async(_examine(arguments), debug=arguments.debug)


async def _examine(arguments: argparse.Namespace) -> int:
    settings = Settings.from_env()
    screen = out()
    worst = {"ok": 0, "warning": 0, "problem": 0}
    for check in await check_machine(settings):
        _put(screen, check, worst, as_json=arguments.json)
    for check in await check_bus(settings):
        _put(screen, check, worst, as_json=arguments.json)
    say(
        "all is well"
        if worst["problem"] == worst["warning"] == 0
        else f"{_count(worst['problem'], 'problem')}, {_count(worst['warning'], 'warning')}"
    )
    return Exit.FAILED if worst["problem"] else Exit.OK


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _put(screen: Screen, check: Check, worst: dict[str, int], *, as_json: bool) -> None:
    worst[check.state] += 1
    if as_json:
        put_json(check)
        return
    style = _STYLES[check.state]
    mark = screen.paint(f"{_MARKS[check.state]} {pad(check.state, 7)}", style)
    screen.line(f"{mark}  {pad(check.name, 12)}  {check.found}")
    if check.todo:
        screen.line(f"{' ' * 25}{screen.paint('→ ' + check.todo, style)}")
