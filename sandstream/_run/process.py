"""This process's share of the actors: a bus, a harness and a tool host for the runs that it calls.

One per event loop, opened by the first ``Runner.run`` and closed with the loop. Its pool has a
random name, so that nobody else takes its turns or calls. A process that continues the keyed run of
a dead one moves the run to its own pool.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sandstream_actors.harness.actor import Harness
from sandstream_actors.state_cache import StateCache
from sandstream_actors.tools import ToolHost
from sandstream_bus.bus import Bus
from sandstream_bus.errors import Retry
from sandstream_bus.messages import CallRequested
from sandstream_bus.subjects import RunId

from sandstream.connect import OpenBus, open_bus
from sandstream.hosted_models import HostedModels
from sandstream.hosting.hosted_run import Host, HostedRun
from sandstream.hosting.memory_phases import KeptModels, hosted_phase, phase_models, phase_of
from sandstream.hosting.user_code import UserCode
from sandstream.ids import new_pool
from sandstream.models.defaults import DefaultModels
from sandstream.run_plan import bind_here, hosted_child
from sandstream.settings import Settings
from sandstream.tracing.setup import reporter_here

if TYPE_CHECKING:
    from sandstream_actors.sandbox.actor import SandboxActor

    from sandstream.memory_host import EmbeddedMemory
    from sandstream.sandbox.session.link import BusLink

logger = logging.getLogger(__name__)

ISOLATION = "SANDSTREAM_LOCAL_ISOLATION"
"""The variable that says how this machine's sandboxes are isolated, unless a client does."""
POOL_IDLE_S = 600.0
"""A dead process's consumers are deleted after this; its runs may be moved to another one."""


class Process:
    """The actors of this process and the runs they work for."""

    def __init__(self, opened: OpenBus, settings: Settings) -> None:
        self.bus: Bus = opened.bus
        self.settings = settings
        self.pool = new_pool()
        self._opened = opened
        self._models = DefaultModels()
        self._runs: dict[RunId, list[HostedRun]] = {}
        """Callers of one key may wait for the same run; the last that came hosts it."""
        self._child_runs: dict[RunId, tuple[HostedRun, HostedRun]] = {}
        """Child runs, with the run at the top of their tree."""
        self._actors: tuple[Harness, ToolHost] | None = None
        self._sandboxes: dict[str, asyncio.Future[SandboxActor]] = {}
        self._memory: EmbeddedMemory | None = None
        self._kept_models = KeptModels()
        """Of runs whose memories are made after their callers have left."""
        self._hosted_models = HostedModels(self.bus)
        self._user_code = UserCode(self._find_run, self._hosted_models.ask)
        self._lifetime: AsyncIterator[None] | None = None
        self._background: set[asyncio.Future[None]] = set()
        self._closed = False
        self._reporter = reporter_here()

    @classmethod
    async def open(cls, settings: Settings) -> Process:
        opened = await open_bus(settings, name="sandstream-runner")
        try:
            self = cls(opened, settings)
            state = await self.bus.topology.stream_state(self.bus.connection, self.bus.topology.log)
            await self._start_actors(state["last_seq"] + 1)
        except BaseException:
            await opened.close()
            raise
        return self

    async def _start_actors(self, start_sequence: int) -> None:
        common: dict[str, Any] = {
            "pool": self.pool,
            "start_sequence": start_sequence,
            "inactive_s": POOL_IDLE_S,
        }
        harness = Harness(self.bus, self._models, takes_tasks=False, **common)
        host = ToolHost(self.bus, self._user_code, **common)
        await asyncio.gather(harness.start(), host.start())
        self._actors = (harness, host)
        self._reporter.attach(self.bus, self.settings)

    @classmethod
    async def of_this_loop(cls) -> Process:
        """The process's actors on the running event loop, started on first use."""
        loop = asyncio.get_running_loop()
        opening = _processes.get(loop)
        if opening is None or _is_over(opening):
            opening = asyncio.ensure_future(cls._open_for_loop())
            _processes[loop] = opening
        return await asyncio.shield(opening)

    @classmethod
    async def _open_for_loop(cls) -> Process:
        try:
            self = await cls.open(Settings.from_env())
        except BaseException:
            _processes.pop(asyncio.get_running_loop(), None)
            raise
        # asyncio.run() closes asynchronous generators last of all: that is when the loop ends.
        self._lifetime = self._until_loop_closes()
        await anext(self._lifetime)
        return self

    async def _until_loop_closes(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            try:
                await self.close()
            finally:  # the entry keeps its own loop alive: nobody else would remove it
                _processes.pop(asyncio.get_running_loop(), None)

    async def close(self) -> None:
        """Stop working. What is unfinished stays in the log."""
        if self._closed:
            return
        self._closed = True
        for task in self._background:
            task.cancel()
        if self._memory is not None:
            await self._memory.stop()
        if self._actors is not None:
            await asyncio.gather(*(actor.stop(0.0) for actor in self._actors))
        for starting in self._sandboxes.values():
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                await starting.result().stop(0.0)
        await self._models.aclose()
        await self._hosted_models.aclose()
        await self._reporter.detach(self.bus)
        await self._opened.close()

    async def local_sandboxes(self, isolation: str) -> BusLink:
        """This machine's sandboxes, served by an actor in this process from the first use on."""
        from sandstream.sandbox.session.link import BusLink
        from sandstream.sandbox_host import start_local_actor

        starting = self._sandboxes.get(isolation)
        if starting is None or (starting.done() and starting.exception() is not None):
            work = start_local_actor(self.bus, self.settings.home, isolation, own=True)
            starting = self._sandboxes[isolation] = asyncio.ensure_future(work)
        actor = await asyncio.shield(starting)
        return BusLink(self.bus, "local", actor.node, actor.store)

    async def adopt_node(self, own: str, other: str, start_sequence: int) -> None:
        """Have this process's actor serve a node that is gone."""
        for starting in self._sandboxes.values():
            actor = await starting
            if actor.node == own:
                await actor.adopt(other, start_sequence=start_sequence)

    @property
    def memory(self) -> EmbeddedMemory:
        """Sees to it that somebody works on memories, once it is asked to."""
        if self._memory is None:
            from sandstream.memory_host import EmbeddedMemory

            self._memory = EmbeddedMemory(self.bus, self._models, self._memory_place)
        return self._memory

    async def _memory_place(self) -> tuple[str, str]:
        """Consolidations work in sandboxes of this process, isolated as its others are."""
        isolation = next(iter(self._sandboxes), None) or os.environ.get(ISOLATION) or "required"
        return "local", await (await self.local_sandboxes(isolation)).node()

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for; it ends with the process."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- the runs of this process --------------------------------------------------------------

    def add_run(self, run: RunId, hosted: HostedRun) -> None:
        hosted.host = Host(self.bus, self._find_run)
        self._runs.setdefault(run, []).append(hosted)
        uses = [it.memory_use for it in hosted.bound.values() if it.memory_use is not None]
        if any(use.generates or use.live_update for use in uses):
            self.memory.want()

    def remove_run(self, run: RunId, hosted: HostedRun) -> None:
        self._kept_models.keep(run, hosted.bound)
        left = [it for it in self._runs.pop(run, ()) if it is not hosted]
        if left:
            self._runs[run] = left
        for child in [key for key, it in self._child_runs.items() if it[0] is hosted]:
            del self._child_runs[child]

    def hosted(self, run: RunId) -> HostedRun | None:
        """The objects of a run, if they are here."""
        if callers := self._runs.get(run):
            return callers[-1]
        child = self._child_runs.get(run)
        return child[1] if child is not None else None

    async def children_of(self, run: RunId) -> list[HostedRun]:
        """The child runs of one of ours, at any depth, as far as their code is here."""
        states = StateCache(self.bus.log)
        found: list[HostedRun] = []
        todo = [run]
        while todo:
            for event in await self.bus.log.read(todo.pop()):
                if not isinstance(event.event, CallRequested) or event.event.kind != "child":
                    continue
                child = RunId(event.event.child)
                started = (await states.load(child)).started
                if started and started.graph.agents[started.graph.start].host == self.pool:
                    found.append(await self._find_run(child, states))
                    todo.append(child)
        return found

    async def _find_run(self, run: RunId, states: StateCache) -> HostedRun:
        callers = self._runs.get(run)
        if callers:
            return callers[-1]
        known = self._child_runs.get(run)
        if known is not None:
            return known[1]
        state = await states.load(run)
        phase = phase_of(state)
        if phase is not None:
            origin = self.hosted(RunId(phase.origin))
            models = phase_models(origin.bound) if origin else self._kept_models.get(phase.origin)
            return hosted_phase(state, phase, models)
        parent = state.started.parent if state.started else None
        if parent is None or not self._runs.get(RunId(parent.root)):
            # its caller has gone, but may call again with the run's key
            raise Retry("no caller hosts this run now", delay_s=1.0, counts=False)
        above = await self._find_run(RunId(parent.run), states)
        hosted = hosted_child(above, parent, run, bind_here)
        hosted.options, hosted.tracing = state.options, above.tracing
        self._child_runs[run] = (self._runs[RunId(parent.root)][-1], hosted)
        return hosted


def _is_over(opening: asyncio.Future[Process]) -> bool:
    """Did the opening fail, or was the process closed since?"""
    if not opening.done():
        return False
    failed = opening.cancelled() or opening.exception() is not None
    return failed or opening.result()._closed


_processes: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Process]] = (
    WeakKeyDictionary()
)
