"""The actors of this process: a bus, a harness and a tool host for the runs that it starts.

There is one per event loop, opened by the first ``Runner.run`` and closed with the loop, at the
latest when the program ends. Its pool has a random name, so that no other process takes its turns
or calls. A process that continues the keyed run of a dead process moves the run to its own pool.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  its own end is registered before ours
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sandstream_actors.harness.actor import Harness
from sandstream_actors.run.state_cache import StateCache, States
from sandstream_actors.tool_host.actor import ToolHost
from sandstream_bus.bus import Bus
from sandstream_bus.environment import local_isolation
from sandstream_bus.errors import Retry
from sandstream_bus.nats.collector import CollectorRelief
from sandstream_bus.wire.messages import CallRequested
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_bus.wire.subjects import RunId
from sandstream_providers import registry
from sandstream_providers.registry import ProviderEntry

from sandstream._hosting.hosted_run import Host, HostedRun
from sandstream._hosting.memory_phases import KeptModels, hosted_phase, phase_models, phase_of
from sandstream._hosting.models import HostedModels
from sandstream._hosting.user_code import UserCode
from sandstream._run.plan import bind_here, hosted_child
from sandstream._surface.connection import OpenBus, open_bus
from sandstream._wire.ids import new_pool
from sandstream.models.defaults import DefaultModels
from sandstream.settings import Settings
from sandstream.tracing.setup import reporter_here

if TYPE_CHECKING:
    from sandstream_actors.sandbox.actor import SandboxActor

    from sandstream._run.memory_host import EmbeddedMemory
    from sandstream.sandbox.session.link import BusLink

logger = logging.getLogger(__name__)

SandboxesKey = tuple[str, str, str, str]
"""A provider, an isolation, an endpoint and the key for it."""
POOL_IDLE_S = 600.0
"""Consumers of a dead process are deleted after this time; its runs can move to another one."""
_LATE_GENERATOR = "asynchronous generator .* was scheduled after loop.shutdown_asyncgens"
"""What asyncio warns of if a generator starts while a loop ends."""


class Process:
    """The actors of this process and the runs they work for."""

    def __init__(self, opened: OpenBus, settings: Settings) -> None:
        self.bus: Bus = opened.bus
        self.settings = settings
        self.pool = new_pool()
        self._opened = opened
        self._models = DefaultModels()
        self._runs: dict[RunId, list[HostedRun]] = {}
        """Several callers of one key may wait for the same run; the latest caller hosts it."""
        self._child_runs: dict[RunId, tuple[HostedRun, HostedRun]] = {}
        """Child runs, each with the run at the top of its tree."""
        self.before_start: Callable[[RunId], Awaitable[None]] | None = None
        """Called with the id of each run before a caller here starts or continues it."""
        self._actors: tuple[Harness, ToolHost] | None = None
        self._sandboxes: dict[SandboxesKey, asyncio.Future[SandboxActor]] = {}
        """The actor for each provider, isolation, endpoint and key."""
        self._left: set[str] = set()
        """Sandboxes of runs that cannot be continued and could not be cancelled."""
        self._memory: EmbeddedMemory | None = None
        self._kept_models = KeptModels()
        """Models of runs whose memories are made after their callers have left."""
        self._hosted_models = HostedModels(self.bus)
        self._user_code = UserCode(self._find_run, self._hosted_models.ask)
        self._lifetime: AsyncIterator[None] | None = None
        self._background: set[asyncio.Future[None]] = set()
        self._closed = False
        self._reporter = reporter_here()
        self._collector = CollectorRelief()

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
                with warnings.catch_warnings():
                    # Boxes are removed now, and the packages of vendors use such generators.
                    warnings.filterwarnings("ignore", _LATE_GENERATOR, ResourceWarning)
                    await self.close()
            finally:  # the entry keeps its own loop alive, so it must be removed here
                _processes.pop(asyncio.get_running_loop(), None)

    async def close(self) -> None:
        """Stop working. Unfinished work stays in the log."""
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
                await starting.result().stop(0.0, ends=self._left)
        await self._models.aclose()
        await self._hosted_models.aclose()
        await self._reporter.detach(self.bus)
        await self._opened.close()

    async def sandboxes(
        self, provider: str, isolation: str, endpoint: str = "", api_key: str = ""
    ) -> BusLink:
        """A provider's sandboxes, served by an actor in this process from the first use on.

        Args:
            provider: A name of the registry.
            isolation: ``required`` or ``none``.
            endpoint: Where the provider's service is; empty: where the environment says.
            api_key: The key for that service; empty: the one that the environment has.
        """
        from sandstream._run.sandbox_host import start_sandbox_actor
        from sandstream.sandbox.session.link import BusLink

        key = (provider, isolation, endpoint, api_key)
        starting = self._sandboxes.get(key)
        if starting is None or (starting.done() and starting.exception() is not None):
            work = start_sandbox_actor(
                self.bus,
                self.settings.home,
                isolation,
                provider=provider,
                own=True,
                endpoint=endpoint,
                api_key=api_key,
            )
            starting = self._sandboxes[key] = asyncio.ensure_future(work)
        actor = await asyncio.shield(starting)
        return BusLink(self.bus, provider, actor.node, actor.store)

    async def adopt_node(self, own: str, other: str, start_sequence: int) -> None:
        """Let this process's actor serve the sandboxes of a dead node."""
        for starting in self._sandboxes.values():
            actor = await starting
            if actor.node == own:
                await actor.adopt(other, start_sequence=start_sequence)

    @property
    def memory(self) -> EmbeddedMemory:
        """The memory actor of this process; it starts when it is wanted."""
        if self._memory is None:
            from sandstream._run.memory_host import EmbeddedMemory

            self._memory = EmbeddedMemory(self.bus, self._models, self._memory_place)
        return self._memory

    async def _memory_place(self) -> tuple[str, str]:
        """Consolidations work in sandboxes of this process, isolated as its others are. They name
        no image, so a provider that needs one is left out, and so is a vendor's, which costs money.
        """
        usable = [it for it in self._sandboxes if _is_free(registry.find(it[0]))]
        place = next(iter(usable), (DEFAULT_PROVIDER, local_isolation(), "", ""))
        return place[0], await (await self.sandboxes(*place)).node()

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work whose result is not awaited; it ends with the process."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- the runs of this process --------------------------------------------------------------

    def add_run(self, run: RunId, hosted: HostedRun) -> None:
        hosted.host = Host(self.bus, self._find_run)
        self._runs.setdefault(run, []).append(hosted)
        self._collector.follow(len(self._runs))
        uses = [it.memory_use for it in hosted.bound.values() if it.memory_use is not None]
        if any(use.generates or use.live_update for use in uses):
            self.memory.want()

    def remove_run(self, run: RunId, hosted: HostedRun) -> None:
        self._kept_models.keep(run, hosted.bound)
        left = [it for it in self._runs.pop(run, ()) if it is not hosted]
        if left:
            self._runs[run] = left
        self._collector.follow(len(self._runs))
        for child in [key for key, it in self._child_runs.items() if it[0] is hosted]:
            del self._child_runs[child]

    def leave(self, sandboxes: Iterable[str]) -> None:
        """These sandboxes have no more work: their boxes end with this process."""
        self._left.update(sandboxes)

    def hosted(self, run: RunId) -> HostedRun | None:
        """The objects of a run, if they are in this process."""
        if callers := self._runs.get(run):
            return callers[-1]
        child = self._child_runs.get(run)
        return child[1] if child is not None else None

    async def children_of(self, run: RunId) -> list[HostedRun]:
        """The child runs of a run of this process, at any depth, as far as their code is here."""
        states = StateCache(self.bus.log)
        found: list[HostedRun] = []
        todo = [run]
        while todo:
            for event in await self.bus.log.read(todo.pop()):
                if (
                    not isinstance(event.event, CallRequested)
                    or not event.event.traits.is_child_run
                ):
                    continue
                child = RunId(event.event.child)
                started = (await states.load(child)).started
                if started and started.graph.agents[started.graph.start].host == self.pool:
                    found.append(await self._find_run(child, states))
                    todo.append(child)
        return found

    async def _find_run(self, run: RunId, states: States) -> HostedRun:
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


def _is_free(entry: ProviderEntry) -> bool:
    """Does it make boxes on this machine, and without options?"""
    return entry.owns_boxes and not entry.needs_options


def _is_over(opening: asyncio.Future[Process]) -> bool:
    """Did the opening fail, or was the process closed since?"""
    if not opening.done():
        return False
    failed = opening.cancelled() or opening.exception() is not None
    return failed or opening.result()._closed


_processes: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Process]] = (
    WeakKeyDictionary()
)


def _close_at_exit() -> None:
    """Close the processes of loops that are still open, as that of ``Runner.run_sync`` is. Without
    this, removals of boxes are lost, and Python itself may crash on tasks that are left.
    """
    for loop, opening in list(_processes.items()):
        if loop.is_running() or loop.is_closed() or not opening.done() or _is_over(opening):
            continue
        try:
            loop.run_until_complete(opening.result().close())
        except Exception:  # the other loops, and other packages, have their turn as well
            logger.warning("the actors of this program did not end cleanly", exc_info=True)


# Closing needs threads, and those of `concurrent.futures` have ended when `atexit` is at work.
getattr(threading, "_register_atexit", atexit.register)(_close_at_exit)
os.register_at_fork(after_in_child=_processes.clear)  # the parent's are not the child's to close
