"""The memory actor: turns finished runs into memories, in the background.

It reads the ends of runs and requests to memories. Each step decides by replacing the scope's state
under compare-and-set, then sends messages whose ids are derived from the decision, and acknowledges
last. A redelivery therefore repairs a crash at any point, and any number of replicas share the
work.

    a run's end        appends it to its rollout and requests an extraction     rollout_intake.py
    extract            a run without tools extracts what is worth remembering   extraction.py
    merge              a run in its own sandbox consolidates                    consolidation.py
    edit               merges in what was changed in a workspace                edits.py
    once an hour       removes what dead processes left in the store            sweep.py
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import Drop, MessageError, UndecodableMessage
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire.headers import MSG_ID
from sandstream_bus.wire.memories import (
    EditRequested,
    ExtractRequested,
    MemoryRequest,
    MergeRequested,
)
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.specs import NO_JSON
from sandstream_bus.wire.subjects import check_token, session_of
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.base import Actor
from sandstream_actors.memory.after_change import finish
from sandstream_actors.memory.consolidation import Consolidations
from sandstream_actors.memory.context import BACKOFF_S, Means, Place
from sandstream_actors.memory.edits import edit
from sandstream_actors.memory.extraction import Extractions
from sandstream_actors.memory.rollout_intake import note
from sandstream_actors.memory.sweep import Sweeper

CONSUMER: Final = "memory"
MAX_IN_FLIGHT: Final = 64


class _End(msgspec.Struct):
    """The part of a run's end that says whether it may concern a memory. Most do not."""

    type: str = ""
    memory: msgspec.Raw = NO_JSON


_end: Final = msgspec.json.Decoder(_End).decode


class MemoryActor(Actor):
    """One replica. Its starter also serves the harness ``pool``."""

    def __init__(
        self,
        bus: Bus,
        store: WorkspaceStore,
        *,
        place: Place,
        pool: str = "memory",
        watch_s: float = 15.0,
        backoff_s: tuple[float, ...] = BACKOFF_S,
        sweep_every_s: float = 3600.0,
    ) -> None:
        """Create a replica; ``start`` starts it.

        Args:
            place: returns where to create the workspace of a consolidation.
            watch_s: how often to check that a running phase is still being worked on.
            backoff_s: the pauses between attempts of a phase.
            sweep_every_s: how often to remove what dead processes left in the store.
        """
        super().__init__("memory", bus=bus, max_in_flight=MAX_IN_FLIGHT)
        self._means = Means(
            bus, store, place, check_token(pool, "the pool"), watch_s, tuple(backoff_s)
        )
        self._extractions = Extractions(self._means)
        self._consolidations = Consolidations(self._means)
        self._worker = self.reads(ConsumerSpec(name=CONSUMER, filters=bus.subjects.memory_work()))
        due = bus.subjects.due_for("memory")
        self.carries(bus.topology.timers, f"timers-{CONSUMER}", due, bus.timers.send_on)
        self.works_on(Sweeper(bus, every_s=sweep_every_s).run)

    async def handle(self, delivery: Delivery) -> None:
        crashpoint("memory.received")
        if self._bus.subjects.split(delivery.subject).family == "run":
            await self._on_end(delivery)
            return
        request = await self._request(delivery)  # validate first: the message may be anything
        scope = await self._scope(delivery)
        sequence = delivery.sequence
        match request:
            case ExtractRequested(watches=""):
                redriven = is_redriven(delivery)
                await self._extractions.begin(scope, request, sequence, is_redriven=redriven)
            case ExtractRequested():
                await self._extractions.watch(scope, request, sequence)
            case MergeRequested(watches=""):
                redriven = is_redriven(delivery)
                await self._consolidations.begin(scope, request, sequence, is_redriven=redriven)
            case MergeRequested():
                await self._consolidations.watch(scope, request, sequence)
            case EditRequested():
                await edit(self._means, scope, request, sequence)
            case _:
                assert_never(request)

    async def _on_end(self, delivery: Delivery) -> None:
        if not _may_concern_memory(delivery.data):
            return
        done = await self._bus.codec.run_event(delivery.data)
        if not isinstance(done, RunDone) or done.memory is None:
            return
        run = self._bus.subjects.delivered_run(delivery.subject).run
        if not await self._bus.log.has_begun(run, delivery.headers):
            raise Drop(f"the run {run} has not begun")
        match done.memory.step:
            case "rollout":
                await note(self._means, run, done.memory)
            case "extract":
                await self._extractions.finish(done.memory, run, done)
            case "merge":
                await self._consolidations.finish(done.memory, run, done)

    async def _request(self, delivery: Delivery) -> MemoryRequest:
        message = await self._bus.codec.memory_event(delivery.data)
        if not isinstance(message, ExtractRequested | MergeRequested | EditRequested):
            kind = message.__struct_config__.tag
            raise UndecodableMessage(f"{kind} is out of place on {delivery.subject}")
        return message

    async def _scope(self, delivery: Delivery) -> str:
        """The scope's own name; a long one cannot be read back from a subject. Finishes any
        unfinished change of the scope first.
        """
        token = self._bus.subjects.parse_memory(delivery.subject)
        state = (await self._bus.memories.read(session_of(token))).state
        await finish(self._bus, state)
        return state.scope

    async def on_parked(self, delivery: Delivery, reason: str) -> None:
        """Clear the phase of a parked request, so that no caller waits until an operator handles
        it.
        """
        if self._bus.subjects.split(delivery.subject).family == "run":
            return
        try:
            request = await self._request(delivery)
            scope = await self._scope(delivery)
        except MessageError:
            return  # the request or its memory cannot be read
        if isinstance(request, ExtractRequested):
            await self._extractions.give_up(scope, request, delivery.sequence, reason)
        elif isinstance(request, MergeRequested):
            await self._consolidations.give_up(scope, request, delivery.sequence, reason)


def is_redriven(delivery: Delivery) -> bool:
    """Whether a person re-drove this message from the parked ones."""
    return delivery.headers.get(MSG_ID, "").startswith("redrive:")


def _may_concern_memory(data: bytes) -> bool:
    try:
        end = _end(data)
    except NOT_JSON:
        return False
    return bool(end.memory) or end.type == "claim"
