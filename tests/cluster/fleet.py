"""A deployed system on a cluster: two harnesses, two workers, a sandbox actor, a memory actor.

Each fleet is an installation of its own on the cluster: it has its prefix, so it has its streams.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any

from actors.memory.rig import SCOPE
from chaos.composition.fleet import CompositionFleet
from chaos.composition.scenarios import Plan
from chaos.evidence import Effect, read_ledger
from chaos.memory.fleet import MEMORY, MemoryFleet
from chaos.processes import Program
from chaos.sandbox.fleet import HARNESS, SANDBOX
from cluster.mix import SCRIBE_AGENT, Job
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire.messages import RunWaiting
from support.servers.nats_cluster import NatsCluster, streams_of

from sandstream.settings import Settings

WORKER = "worker"
COUNTS = {HARNESS: 2, WORKER: 2, SANDBOX: 1, MEMORY: 1}


class ClusterFleet(MemoryFleet, CompositionFleet):
    """Owns its processes and its streams, not the cluster."""

    def __init__(
        self, directory: Path, model_url: str, cluster: NatsCluster, *, prefix: str
    ) -> None:
        super().__init__(directory, model_url)
        self.cluster = cluster
        self.prefix = prefix
        self.replicas = {kind: [] for kind in COUNTS}
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._last: dict[str, bytes] = {}
        self._effects: dict[str, list[Effect]] = {}
        self.last_news = 0.0
        """When the observer saw something, by the monotonic clock."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(program.kill() for program in self._programs))
        await asyncio.to_thread(self.cluster.heal)
        if hasattr(self, "client"):
            await self.cluster.delete_streams(self.client.bus)
        await super().__aexit__(kind, error, trace)

    async def _start_server(self) -> None:
        await self.cluster.create_streams(self.prefix)

    async def _end_server(self) -> None:
        """The cluster is not the fleet's."""

    def settings(self) -> Settings:
        return Settings(
            home=self.directory,
            nats=self.cluster.options(),
            prefix=self.prefix,
        )

    def env(self) -> dict[str, str]:
        return super().env() | {
            "NATS_URL": self.cluster.url,
            "SANDSTREAM_PREFIX": self.prefix,
        }

    async def replica(self, kind: str, **options: Any) -> Program:
        if kind != WORKER:
            return await super().replica(kind, **options)
        program = await self.program("office", SCOPE, **options)
        await program.ready()
        self.replicas[kind].append(program)
        return program

    # --- what the log says ---------------------------------------------------------------------

    async def _on_message(self, delivery: Delivery) -> None:
        await super()._on_message(delivery)
        self.last_news = time.monotonic()
        self._last[delivery.subject] = delivery.data
        self._events[delivery.subject].set()

    async def until_seen(self, subject: str) -> None:
        """Wait until the observer has seen a message of this subject."""
        await self._events[subject].wait()

    async def until_waiting(self, run: str, within_s: float = 60.0) -> RunWaiting:
        """What a run asks, as the observer has seen it: a read here could be stale."""
        subject = self.client.bus.subjects.waiting(run)
        async with asyncio.timeout(within_s):
            await self.until_seen(subject)
        event = await self.client.bus.codec.run_event(self._last[subject])
        assert isinstance(event, RunWaiting)
        return event

    async def settle(self) -> None:
        """Wait until all copies of all streams are the same: only then a read tells the truth."""
        bus = self.client.bus
        await self.cluster.until_current(bus.connection, streams_of(bus))
        self._effects = {}
        for effect in read_ledger(self.ledger):
            self._effects.setdefault(effect.key, []).append(effect)

    def effects(self, key: str) -> list[Effect]:
        return self._effects.get(key, [])

    # --- runs ----------------------------------------------------------------------------------

    async def ask_for(self, job: Job) -> None:
        """Submit a run."""
        if job.session:
            await self.talk(job.session, job.key)
        elif isinstance(job.kind, Plan):
            await self.begin(job.kind, job.key)
        else:
            await self.order(job.key, job.order, agent=SCRIBE_AGENT)

    async def finish(self, job: Job) -> None:
        """Answer what the run asks, and wait for its end."""
        subjects = self.client.bus.subjects
        if job.asks:
            await self.until_seen(subjects.waiting(job.key))
            await self.approve_all(job.key)
        await self.until_seen(subjects.done(job.key))
