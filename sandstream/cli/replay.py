"""``sandstream replay``: a run's stored events again, in their own time."""

from __future__ import annotations

import argparse
import asyncio

from sandstream.cli.event_lines import EventLines, record_of
from sandstream.cli.exits import Exit
from sandstream.cli.render import out, seconds_between
from sandstream.cli.session import connected, events_of, put_json, run_async


def main(arguments: argparse.Namespace) -> int:
    return run_async(_replay(arguments), debug=arguments.debug)


async def _replay(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        events = await events_of(client, arguments.run)
    screen = out()
    lines = EventLines(screen)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for event in events:
        if not arguments.instant:
            # against the start, not the event before: small delays do not add up
            passed = seconds_between(events[0].stored.time, event.stored.time) or 0.0
            await asyncio.sleep(max(0.0, began + passed / arguments.speed - loop.time()))
        if arguments.json:
            put_json(record_of(arguments.run, event))
            continue
        for line in lines.render(event):
            screen.line(line)
    return Exit.OK
