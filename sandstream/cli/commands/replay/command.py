"""``sandstream replay``: the stored events of a run and of those below it, in their own time."""

from __future__ import annotations

import argparse
import asyncio

from sandstream_bus.logs.runs import LogEvent

from sandstream._inspect.rows import record_of
from sandstream._inspect.tree_follower import TreeFollower
from sandstream.cli.exits import Exit
from sandstream.cli.session import connected, events_of, put_json, run_async
from sandstream.cli.terminal.render import out, seconds_between
from sandstream.cli.terminal.tree_lines import TreeTeller


def main(arguments: argparse.Namespace) -> int:
    return run_async(_replay(arguments), debug=arguments.debug)


async def _replay(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        first = await events_of(client, arguments.run)
        story = await TreeFollower(client.bus, arguments.run).stored(first)
    teller = TreeTeller(out(), None)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for told in story:
        event = told.event
        assert isinstance(event, LogEvent)
        if not arguments.instant:
            # against the start, not the event before: small delays do not add up
            passed = seconds_between(first[0].stored.time, event.stored.time) or 0.0
            await asyncio.sleep(max(0.0, began + passed / arguments.speed - loop.time()))
        if arguments.json:
            put_json(record_of(told.member.run, event))
        else:
            await teller.tell(told, is_shown=True)
    return Exit.OK
