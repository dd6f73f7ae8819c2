"""``sandstream memory merge``: consolidate now, and optionally wait for it."""

from __future__ import annotations

import argparse
import asyncio
import uuid

from sandstream_actors.memory.actor import CONSUMER
from sandstream_actors.memory.scope.pending_work import AGAIN, CANCELLED
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.errors import PermissionDenied
from sandstream_bus.nats.fresh import fresh_many
from sandstream_bus.wire.memories import MemoryChanged, MemoryFailed, MemoryState, MergeRequested

from sandstream._wire.asks import Asks
from sandstream.cli.commands.memory.command import pending_text
from sandstream.cli.commands.memory.scopes import memory_named, summary_of, unread_ends
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import connected, put_json, say
from sandstream.cli.terminal.render import one_line
from sandstream.client import Client

_LOOK_EVERY_S = 0.25


async def merge(arguments: argparse.Namespace) -> int:
    if arguments.timeout is not None and not arguments.wait:
        raise CliError(Exit.USAGE, "--timeout is for --wait")
    async with connected() as client:
        try:
            state = await memory_named(client, arguments.scope)
        except PermissionDenied:
            if client.asks is None or arguments.wait or arguments.json:
                raise
            return await _ask_unseen(client.asks, arguments)
        before = summary_of(state)
        is_idle = not before.is_pending and not await unread_ends(client.bus)
        if is_idle and not (arguments.again and state.selected):
            given_up = f"; {pending_text(before)}: `sandstream parked` tells more"
            more = given_up if before.given_up else ""
            more += " (--again repeats it)" if state.selected else ""
            say(f"memory {one_line(state.scope)}: nothing is left to consolidate{more}")
        else:
            state = await _merge(client, state, arguments)
    if arguments.json:
        put_json(summary_of(state))
    return Exit.OK


async def _merge(client: Client, state: MemoryState, arguments: argparse.Namespace) -> MemoryState:
    bus = client.bus
    request = MergeRequested(reason=AGAIN if arguments.again else "asked")
    if client.asks is not None:
        sequence = await client.asks.merge(state.scope, request)
    else:
        sequence = await bus.memories.send(
            bus.subjects.memory_merge(state.scope),
            request,
            msg_id=f"memory-asked:{uuid.uuid4().hex}",
        )
    summary = summary_of(state)
    unread = "perhaps unread runs"
    left = pending_text(summary) or ("nothing new" if arguments.again else unread)
    say(f"asked: {one_line(state.scope)} has {left}")
    for problem in summary.problems:
        say(one_line(problem))
    if not await bus.presence.is_served(CONSUMER):
        say("no memory actor is live, so the request waits; start one: sandstream actor memory")
    if not arguments.wait:
        return state
    try:
        async with asyncio.timeout(arguments.timeout):
            return await Waiting(bus, state.scope, sequence).wait()
    except TimeoutError:
        raise CliError(
            Exit.TIMEOUT, f"not done after {arguments.timeout:g} s; it continues in the background"
        ) from None


async def _ask_unseen(asks: Asks, arguments: argparse.Namespace) -> int:
    """Send the request of a user who may not read memories."""
    request = MergeRequested(reason=AGAIN if arguments.again else "asked")
    await asks.merge(arguments.scope, request)
    say(f"asked: {one_line(arguments.scope)} (this user may not see what is left to consolidate)")
    return Exit.OK


class Waiting:
    """Reads a memory until nothing is pending, and prints what happens meanwhile."""

    def __init__(self, bus: Bus, scope: str, after: int) -> None:
        self._bus = bus
        self._scope = scope
        self._asked_at = self._after = after
        """The last message of the log that was seen."""
        self._merging = ""
        self._given_up = ""
        """What will not be part of it, in words."""

    async def wait(self) -> MemoryState:
        while True:
            is_read = await self._is_read()  # first: what follows from it is in the state then
            state = (await self._bus.memories.read(self._scope)).state
            await self._tell_events()
            self._tell_run(state)
            if is_read and not summary_of(state).is_pending:
                if self._given_up:
                    raise CliError(Exit.FAILED, self._given_up)
                return state
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _is_read(self) -> bool:
        """Whether the memory actor has read all ends of runs from before the request."""
        info = await self._bus.topology.consumer_info(self._bus.connection, CONSUMER)
        return info is not None and info["ack_floor"]["stream_seq"] >= self._asked_at

    def _tell_run(self, state: MemoryState) -> None:
        run = state.merging.run if state.merging is not None else ""
        if run and run != self._merging:
            say(f"consolidates: sandstream watch {run}")
        self._merging = run

    async def _tell_events(self) -> None:
        bus = self._bus
        subject = bus.subjects.memory_event(self._scope)
        for stored in await fresh_many(
            bus.connection, bus.topology.log, subject, after=self._after
        ):
            self._after = stored.sequence
            event = await bus.codec.memory_event(stored.data)
            if isinstance(event, MemoryChanged):
                say(changed_text(event))
            elif isinstance(event, MemoryFailed):
                if event.is_final and event.step == "merge":
                    raise CliError(Exit.FAILED, failed_text(event))
                if event.is_final:
                    self._given_up = f"the memory is not complete: {failed_text(event)}"
                say(failed_text(event))


def changed_text(event: MemoryChanged) -> str:
    """What was done, in one line."""
    of = f" of {numbered(len(event.runs), 'run')}" if event.runs else ""
    match event.kind:
        case "extracted":
            found = "nothing worth keeping" if event.empty else "extracted"
            return one_line(f"rollout {event.rollout}: {found}")
        case "noted":
            return one_line(f"rollout {event.rollout}: noted{of}")
        case _:
            return f"revision {event.revision}: {event.kind}{of}"


def failed_text(event: MemoryFailed) -> str:
    """What failed, in one line."""
    what = f"extraction of rollout {event.rollout}" if event.step == "extract" else event.step
    goes_on = "it is tried again"
    if event.is_final:
        is_parked = not event.error.startswith(CANCELLED)
        goes_on = "given up" + ("; see `sandstream parked`" if is_parked else "")
    return one_line(f"{what} failed (try {event.attempt}): {event.error}; {goes_on}")
