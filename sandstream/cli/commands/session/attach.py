"""``sandstream session attach``: follow a session, and send the lines that are typed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from typing import Any

import msgspec

from sandstream._inspect.rows import EventRow
from sandstream.cli.commands.session.teller import SessionTeller
from sandstream.cli.exits import Exit
from sandstream.cli.session import put_json, say, stop_signals
from sandstream.cli.terminal.confirmation import typed_line
from sandstream.cli.terminal.render import out
from sandstream.exceptions import AgentsException
from sandstream.sessions.durable_session import DurableSession
from sandstream.sessions.events import RunStep, SessionEvent


class Step(msgspec.Struct, kw_only=True, omit_defaults=True, tag="run.step"):
    """A stored event as ``--json`` prints it."""

    turn: int
    run: str
    sequence: int
    time: str
    depth: int = 0
    name: str = ""
    event: msgspec.Struct


async def attach(session: DurableSession, arguments: argparse.Namespace) -> int:
    """Follow until the session is destroyed, or a person detaches."""
    as_json: bool = arguments.json
    is_talking = not as_json and sys.stdin.isatty()
    stopped = stop_signals()
    since = getattr(arguments, "since", None)
    if is_talking:
        say("type a message and press Enter; Ctrl-C detaches")
    async with contextlib.AsyncExitStack() as stack:
        tasks = [asyncio.ensure_future(_follow(session, since, as_json))]
        if is_talking:
            tasks.append(asyncio.ensure_future(_talk(session)))
        waiting = asyncio.ensure_future(stopped.wait())
        running: list[asyncio.Future[Any]] = [*tasks, waiting]
        stack.push_async_callback(_stop, running)
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()  # raises what went wrong
        if tasks[0].done():
            say(f"session {session.id} is destroyed")
            return Exit.OK
    say(f"detached: the session goes on (sandstream session attach {session.id})")
    return Exit.OK


async def _stop(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(session: DurableSession, since: int | None, as_json: bool) -> None:
    teller = SessionTeller(out())
    async with contextlib.aclosing(session.follow(since=since)) as events:
        async for event in events:
            if as_json:
                put_json(_shown(event))
            else:
                teller.tell(event)


def _shown(event: SessionEvent) -> msgspec.Struct:
    if not isinstance(event, RunStep):
        return event
    row: EventRow = event.row
    return Step(
        turn=event.turn,
        run=row.run,
        sequence=row.sequence,
        time=row.time,
        depth=event.depth,
        name=event.name,
        event=row.event,
    )


async def _talk(session: DurableSession) -> None:
    """Send each line; the end of input detaches."""
    while (line := await typed_line()) is not None:
        if not line.strip():
            continue
        try:
            await session.send(line.rstrip("\n"))
        except AgentsException as error:
            say(f"sandstream: {error}")
