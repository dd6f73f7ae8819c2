"""``sandstream approvals``: what waits for people."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from sandstream_bus.counts import numbered

from sandstream._inspect.texts import call_text
from sandstream.approvals import OpenApproval
from sandstream.cli.exits import Exit
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.cli.terminal.render import Cell, Column, Row, age, duration, out, parse_time, table

_COLUMNS = [
    Column("RUN", shrinks=22),
    Column("CALL"),
    Column("AGENT", shrinks=8, drops=2),
    Column("WANTS TO", shrinks=20),
    Column("SINCE", ">"),
    Column("EXPIRES", ">", drops=1),
]


def main(arguments: argparse.Namespace) -> int:
    return run_async(_list(arguments), debug=arguments.debug)


async def _list(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await client.approvals(limit=arguments.limit + 1)
    shown = found[: arguments.limit]
    if arguments.json:
        for it in shown:
            put_json(it)
        return Exit.OK
    if not shown:
        say("nothing waits for a person")
        return Exit.OK
    screen = out()
    for line in table(screen, _COLUMNS, [_row(it) for it in shown]):
        screen.line(line)
    if len(found) > len(shown):
        say("there are more (--limit)")
    one = shown[0]
    what = "it" if len(shown) == 1 else f"one of {numbered(len(shown), 'call')}"
    say(f"answer {what}: sandstream approve {one.run_id} {one.call}   (or reject)")
    return Exit.OK


def _row(it: OpenApproval) -> Row:
    return [
        Cell(it.run_id, "bold"),
        Cell(it.call),
        Cell(it.agent),
        Cell(call_text(it.tool, it.arguments), "yellow"),
        Cell(age(it.since), "dim"),
        Cell(_expires(it), "dim"),
    ]


def _expires(it: OpenApproval) -> str:
    """The time until the approval expires."""
    asked = parse_time(it.since)
    if it.expires_s is None or asked is None:
        return "never"
    left = asked + timedelta(seconds=it.expires_s) - datetime.now(UTC)
    return f"in {duration(left.total_seconds())}" if left > timedelta() else "now"
