"""``sandstream watch``: a run's tree to its end; without a run, all of them (live_table.py)."""

from __future__ import annotations

import argparse
import contextlib

from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import RunDone

from sandstream._inspect.rows import record_of
from sandstream._inspect.tree_follower import TreeFollower
from sandstream.cli.exits import Exit, exit_of_status
from sandstream.cli.session import (
    connected,
    is_queued,
    no_arguments,
    not_found,
    put_json,
    run_async,
    say,
)
from sandstream.cli.terminal.render import out
from sandstream.cli.terminal.tree_lines import LiveOutputs, TreeTeller
from sandstream.client import Client


def main(arguments: argparse.Namespace) -> int:
    if arguments.run is None:
        from sandstream.cli.commands.watch.live_table import watch_all

        no_arguments(arguments, "after")
        return run_async(watch_all(as_json=arguments.json), debug=arguments.debug)
    return run_async(_watch(arguments), debug=arguments.debug)


async def _watch(arguments: argparse.Namespace) -> int:
    run: str = arguments.run
    async with connected() as client:
        earlier = await client.events(run)
        if not earlier:
            if not await is_queued(client, run):
                raise await not_found(client, run)
            say(f"run {run} waits for a harness")
        if earlier and earlier[-1].sequence <= arguments.after:
            last = earlier[-1].event
            if isinstance(last, RunDone):  # nothing will come after it
                return exit_of_status(last.status)
        return await _follow(client, run, arguments.after, as_json=arguments.json)


async def _follow(client: Client, run: str, after: int, *, as_json: bool) -> int:
    code: int = Exit.OK
    async with contextlib.AsyncExitStack() as stack:
        teller = TreeTeller(out(), LiveOutputs(client.bus, stack))
        following = TreeFollower(client.bus, run).events()
        async for told in await stack.enter_async_context(contextlib.aclosing(following)):
            if not isinstance(told.event, LogEvent):
                continue
            if as_json:
                if told.event.sequence > after:
                    put_json(record_of(told.member.run, told.event))
            else:
                await teller.tell(told, is_shown=told.event.sequence > after)
            if told.member.run == run and isinstance(told.event.event, RunDone):
                code = exit_of_status(told.event.event.status)
    return code
