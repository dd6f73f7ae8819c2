"""Starts a run: publishes its first event, or finds the existing run of its key.

A run with a ``run_key`` outlives its caller. The next caller waits for the process that works on
it, or takes the run over if that process is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence

import msgspec
from msgspec import Raw
from sandstream_actors.harness.retry_plan import RETRIED, CannotRetry, plan_retry
from sandstream_actors.model import preload
from sandstream_actors.run.deployed import resolved
from sandstream_actors.run.state import RunState
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.runs import Conflict, LogEvent
from sandstream_bus.nats.direct import Stored
from sandstream_bus.wire.attempts import attempt_headers
from sandstream_bus.wire.messages import RetryRequested, RunDone, RunMoved, RunStarted
from sandstream_bus.wire.specs import RunOptions
from sandstream_bus.wire.subjects import RunId

from sandstream._hosting.run_tracing import RunTracing
from sandstream._run.plan import RunPlan
from sandstream._run.process import Process
from sandstream._run.retries import stored_note
from sandstream._run.takeover import bring_sandboxes, pool_for
from sandstream._wire.options import started_now
from sandstream.exceptions import UserError
from sandstream.run_config import RunConfig

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0
"""How often the caller of a keyed run checks whether this process still owns the run."""


class RunStart:
    """The start of a run that this process wants."""

    def __init__(
        self,
        run_id: RunId,
        plan: RunPlan,
        config: RunConfig,
        items: list[Raw],
        options: RunOptions,
        *,
        is_text: bool,
        tracing: RunTracing,
    ) -> None:
        self.run_id = run_id
        self._plan = plan
        self._config = config
        self._items = items
        self._options = options
        self._is_text = is_text
        self._tracing = tracing
        self._is_elsewhere = False
        """Another process works on the run; this one waits, and takes over if that one dies."""
        self._looked_at = time.monotonic()

    known = 0
    """The last event that the caller already knows."""
    stored = ""
    """A note about the stored end, if the run had ended before this call; else empty."""

    async def is_under_way(self, process: Process) -> bool:
        """Has the run of this key begun? Not if it failed and only this call would retry it."""
        start = process.bus.subjects.start(self.run_id, "*")
        if self._config.run_key is None or await process.bus.log.first_subject(start) is None:
            return False
        if not self._config.retry_failed:
            return True
        done = RunState.of(self.run_id, await process.bus.log.read(self.run_id)).done
        return done is None or done.status not in RETRIED

    async def begin(self, process: Process) -> Sequence[LogEvent]:
        """Publish the run's first event, or find the existing run; return its events so far."""
        pool = pool_for(self._config, process)
        graph = await self._plan.graph(process.pool)
        started = RunStarted(
            graph=await resolved(graph, process.bus.agents),
            input=self._items,
            options=started_now(self._options),
            pool=pool,
            key=self._config.run_key,
            is_text=self._is_text,
        )
        subject = process.bus.subjects.start(self.run_id, pool)
        crashpoint("runner.before_start")
        try:
            sequence = await process.bus.log.append(
                self.run_id,
                subject,
                started,
                after=0,
                msg_id=f"{self.run_id}:start:{uuid.uuid4().hex}",  # a second caller gets a conflict
                headers=self._tracing.headers,
            )
        except Conflict as conflict:
            await self._continue(process, started, conflict.news)
            return await process.bus.log.read(self.run_id)
        crashpoint("runner.after_start")
        stored = Stored(sequence, subject, b"", self._tracing.headers)
        return [LogEvent(sequence, subject, started, stored)]

    async def _continue(
        self, process: Process, wanted: RunStarted, events: Sequence[LogEvent]
    ) -> None:
        """The key's run exists: take it over if its process is gone, else wait for that process."""
        state = RunState.of(self.run_id, events)
        earlier = state.started
        if earlier is None:
            why = f": {state.done.error.message}" if state.done and state.done.error else ""
            raise UserError(
                f"run_key {self._config.run_key!r} belongs to a run that could not start{why}; "
                f"use another key, or `sandstream retry {self.run_id}`"
            )
        name = self._plan.agent.name
        if earlier.graph.start != name:
            raise UserError(
                f"run_key {self._config.run_key!r} belongs to a run of agent "
                f"{earlier.graph.start!r}, not {name!r}; use another key"
            )
        if list(map(bytes, earlier.input)) != list(map(bytes, wanted.input)):
            logger.warning(
                "the run of this key was started with another input; the new input is ignored",
                extra={"run_id": self.run_id, "run_key": self._config.run_key},
            )
        self._is_elsewhere = True
        if state.done is not None:
            await self._meet_end(process, events)
        await self.adopt(process)

    async def _meet_end(self, process: Process, events: Sequence[LogEvent]) -> None:
        """The run has ended: retry it if the caller wants that, else keep its stored end."""
        while True:
            state = RunState.of(self.run_id, events)
            if state.done is None:
                self.stored = ""
                return  # another process retries it
            end = next(it for it in reversed(events) if isinstance(it.event, RunDone))
            self.stored = stored_note(self.run_id, state.done, end.stored.time)
            if not self._config.retry_failed or state.done.status not in RETRIED:
                return
            try:
                reopened = plan_retry(self.run_id, events, self._wanted(state))
            except CannotRetry as error:
                self.stored = f"{self.stored} It cannot be retried: {error}."
                return
            is_here = state.host == process.pool or not await self._is_orphan(process, state.host)
            pool = pool_for(self._config, process)
            moved = RunMoved(pool=pool, host=process.pool)
            if not is_here:
                await bring_sandboxes(process, self._config, state)
            crashpoint("runner.before_retry")
            try:
                # its process is gone: first move the run here, then retry it
                await process.bus.log.append(
                    self.run_id,
                    process.bus.subjects.turn(self.run_id, state.pool if is_here else pool),
                    reopened if is_here else moved,
                    after=state.last_seq,
                    msg_id=f"{self.run_id}:retry:{uuid.uuid4().hex}",
                )
            except Conflict:
                is_here = False
            crashpoint("runner.after_retry")
            if is_here:
                self.stored = ""
                return
            events = await process.bus.log.read(self.run_id)

    def _wanted(self, state: RunState) -> RetryRequested:
        """A retry may raise the run's limits, but not lower them."""
        limit, given = state.options.max_turns, self._options.max_turns
        is_more = limit is not None and (given is None or given > limit)
        return RetryRequested(
            reason="retried by its program",
            max_turns=given if is_more else msgspec.UNSET,
            budget=self._config.budget,
        )

    async def adopt(self, process: Process) -> None:
        """Take the run over if no process serves it. If several processes try, one succeeds."""
        while True:
            state = RunState.of(self.run_id, await process.bus.log.read(self.run_id))
            if state.started is None:
                return
            if state.done is not None or state.host == process.pool:
                self._is_elsewhere = False
                return
            self._is_elsewhere = True
            if not await self._is_orphan(process, state.host):
                return
            pool = pool_for(self._config, process)
            crashpoint("runner.before_move")
            try:
                await process.bus.log.append(
                    self.run_id,
                    process.bus.subjects.turn(self.run_id, pool),
                    RunMoved(pool=pool, host=process.pool),
                    after=state.last_seq,
                    msg_id=f"{self.run_id}:move{state.moves}:{process.pool}",
                    headers=attempt_headers(),
                )
            except Conflict:
                continue
            crashpoint("runner.after_move")
            await bring_sandboxes(process, self._config, state)
            self._is_elsewhere = False
            return

    def must_look(self, now: float) -> bool:
        """Is it time to check which process works on the run? A keyed run may be taken from us."""
        if self._config.run_key is None:
            return False
        if not self._is_elsewhere and now < self._looked_at + LOOK_EVERY_S:
            return False
        self._looked_at = now
        return True

    async def _is_orphan(self, process: Process, host: str) -> bool:
        """Asks twice, because clients are briefly disconnected after a restart of the server."""
        if await process.bus.presence.is_served(f"tools-{host}"):
            return False
        await asyncio.gather(preload(), asyncio.sleep(0.5))  # we may need the model client soon
        return not await process.bus.presence.is_served(f"tools-{host}")
