"""``sandstream watch``: one run's events to its end; without a run, all of them (live_table.py)."""

from __future__ import annotations

import argparse
import contextlib

from sandstream_bus.log import LogEvent
from sandstream_bus.messages import CallFinished, CallRequested, RunDone

from sandstream.cli.command_output import LiveCommands, heard
from sandstream.cli.event_lines import EventLines, record_of
from sandstream.cli.exits import Exit, exit_of_status
from sandstream.cli.render import Screen, out
from sandstream.cli.session import (
    connected,
    is_queued,
    no_arguments,
    not_found,
    put_json,
    run_async,
    say,
)
from sandstream.client import Client


def main(arguments: argparse.Namespace) -> int:
    if arguments.run is None:
        from sandstream.cli.live_table import watch_all

        no_arguments(arguments, "after")
        return run_async(watch_all(as_json=arguments.json), debug=arguments.debug)
    return run_async(_watch(arguments), debug=arguments.debug)


async def _watch(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        earlier = await client.events(arguments.run)
        if not earlier:
            if not await is_queued(client, arguments.run):
                raise await not_found(client, arguments.run)
            say(f"run {arguments.run} waits for a harness")
        if earlier and earlier[-1].sequence <= arguments.after:
            last = earlier[-1].event
            if isinstance(last, RunDone):  # nothing will come after it
                return exit_of_status(last.status)
        return await _follow(client, arguments, earlier)


async def _follow(client: Client, arguments: argparse.Namespace, earlier: list[LogEvent]) -> int:
    screen = out()
    lines = EventLines(screen)
    for known in earlier:
        if known.sequence <= arguments.after:
            lines.skip(known)
    code: int = Exit.OK
    commands = LiveCommands(screen)
    async with contextlib.AsyncExitStack() as stack:
        if not arguments.json:
            await stack.enter_async_context(heard(client.bus, arguments.run, commands.take))
        async for event in client.follow(arguments.run, after=arguments.after):
            if not isinstance(event, LogEvent):
                continue
            if arguments.json:
                put_json(record_of(arguments.run, event))
            else:
                _print(screen, lines, commands, event)
            if isinstance(event.event, RunDone):
                code = exit_of_status(event.event.status)
    return code


def _print(screen: Screen, lines: EventLines, commands: LiveCommands, event: LogEvent) -> None:
    was_shown = isinstance(event.event, CallFinished) and commands.finished(event.event)
    for line in lines.render(event, is_output_shown=was_shown):
        screen.line(line)
    if isinstance(event.event, CallRequested):
        commands.requested(event.event)
