"""The memory actor: finished runs become memories, off everybody's path.

It reads the ends of runs and what is asked of memories. Each step decides by replacing the scope's
state under compare-and-set, then sends what follows under ids that follow from the decision, and
acknowledges last; so a crash anywhere is healed by the redelivery, and any number of replicas share
the work.

    a run's end        its line is noted, its rollout's extraction asked for        noting.py
    extract            a run without tools extracts what is worth remembering       extraction.py
    merge              a run in a sandbox of its own consolidates                   consolidation.py
    edit               what was changed in a workspace is merged in                 edits.py
    once an hour       what dead processes left in the store is cleared away        sweeping.py
"""

from __future__ import annotations

import asyncio
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import MessageError, ObjectMissing, UndecodableMessage
from sandstream_bus.headers import MSG_ID
from sandstream_bus.memory_messages import (
    EditRequested,
    ExtractRequested,
    MemoryRequest,
    MergeRequested,
)
from sandstream_bus.messages import RunDone
from sandstream_bus.runtime import Worker
from sandstream_bus.subjects import RunId, check_token, session_of
from sandstream_bus.topology import ConsumerSpec
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.memory.consolidation import Consolidations
from sandstream_actors.memory.edits import edit
from sandstream_actors.memory.extraction import Extractions
from sandstream_actors.memory.finishing import finish
from sandstream_actors.memory.means import BACKOFF_S, Means, Place
from sandstream_actors.memory.noting import note
from sandstream_actors.memory.sweeping import Sweeper

CONSUMER: Final = "memory"
MAX_IN_FLIGHT: Final = 64
_FILTERS: Final = ("run.*.done", "memory.*.extract", "memory.*.merge", "memory.*.edit")
_SIGNS: Final = (b'"memory"', b'"claim"')
"""What the end of a run holds that may concern a memory; most do not."""


class MemoryActor:
    """One replica. Whoever starts it serves the harness ``pool`` too."""

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
        """``place`` says where the workspace of a consolidation is made; ``watch_s``: how often a
        phase under way is looked at; ``backoff_s``: the pauses between tries of a phase;
        ``sweep_every_s``: how often what dead processes left is cleared away.
        """
        self._bus = bus
        self._means = Means(
            bus, store, place, check_token(pool, "the pool"), watch_s, tuple(backoff_s)
        )
        self._extractions = Extractions(self._means)
        self._consolidations = Consolidations(self._means)
        prefix = bus.subjects.prefix
        spec = ConsumerSpec(name=CONSUMER, filters=[f"{prefix}.{it}" for it in _FILTERS])
        self._worker = Worker(
            bus,
            spec,
            self._on_delivery,
            max_in_flight=MAX_IN_FLIGHT,
            on_parked=self._on_parked,
        )

        self._sweeper = Sweeper(bus, every_s=sweep_every_s)
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._worker.start()
        self._sweeping = asyncio.create_task(self._sweeper.run())

    async def stop(self, grace_s: float = 5.0) -> None:
        """What is not finished comes again, here or at another replica."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._worker.stop(grace_s)

    async def _on_delivery(self, delivery: Delivery) -> None:
        crashpoint("memory.received")
        if delivery.subject.startswith(f"{self._bus.subjects.prefix}.run."):
            await self._on_end(delivery)
            return
        scope = await self._scope(delivery)
        request = await self._request(delivery)
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

    async def _on_end(self, delivery: Delivery) -> None:
        if not any(sign in delivery.data for sign in _SIGNS):
            return
        try:
            done = await self._bus.codec.run_event(delivery.data)
        except ObjectMissing as error:
            raise UndecodableMessage(str(error)) from error
        if not isinstance(done, RunDone) or done.memory is None:
            return
        run = RunId(self._bus.subjects.parse_run(delivery.subject).run)
        match done.memory.step:
            case "rollout":
                await note(self._means, run, done.memory)
            case "extract":
                await self._extractions.finish(done.memory, run, done)
            case "merge":
                await self._consolidations.finish(done.memory, run, done)

    async def _request(self, delivery: Delivery) -> MemoryRequest:
        try:
            message = await self._bus.codec.memory_event(delivery.data)
        except ObjectMissing as error:
            raise UndecodableMessage(str(error)) from error
        if not isinstance(message, ExtractRequested | MergeRequested | EditRequested):
            kind = message.__struct_config__.tag
            raise UndecodableMessage(f"{kind} is out of place on {delivery.subject}")
        return message

    async def _scope(self, delivery: Delivery) -> str:
        """The scope's own name: a long one cannot be read back from a subject. What somebody has
        left unfinished there is done first.
        """
        token = self._bus.subjects.parse_memory(delivery.subject)
        state = (await self._bus.memories.read(session_of(token))).state
        await finish(self._bus, state)
        return state.scope

    async def _on_parked(self, delivery: Delivery, reason: str) -> None:
        """Nobody waits for what a person has to look at first."""
        if delivery.subject.startswith(f"{self._bus.subjects.prefix}.run."):
            return
        try:
            request = await self._request(delivery)
        except MessageError:
            return  # it says nothing
        scope = await self._scope(delivery)
        if isinstance(request, ExtractRequested):
            await self._extractions.give_up(scope, request, delivery.sequence, reason)
        elif isinstance(request, MergeRequested):
            await self._consolidations.give_up(scope, request, delivery.sequence, reason)


def is_redriven(delivery: Delivery) -> bool:
    """Did a person take it out of the parking lot?"""
    return delivery.headers.get(MSG_ID, "").startswith("redrive:")
