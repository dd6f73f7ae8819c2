"""How a run begins: its first event is published, or the run of its key is found.

A run with a ``run_key`` outlives its caller: the next caller waits with whoever works on it, or
takes it over if that process is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence

from msgspec import Raw
from sandstream_actors.deployed import resolved
from sandstream_actors.model import preload
from sandstream_actors.run_state import RunState
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.direct import Stored
from sandstream_bus.log import Conflict, LogEvent
from sandstream_bus.messages import RunMoved, RunStarted
from sandstream_bus.specs import RunOptions
from sandstream_bus.subjects import RunId

from sandstream.exceptions import UserError
from sandstream.process import Process
from sandstream.run_config import RunConfig
from sandstream.run_moving import bring_sandboxes, pool_for
from sandstream.run_options import started_now
from sandstream.run_plan import RunPlan
from sandstream.tracing.run_tracing import RunTracing

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0
"""How often the caller of a keyed run looks whether it is still this process's."""


class RunStart:
    """The beginning of a run that this process wants."""

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
        """Another process works on the run; we wait with it, and take over if it dies."""
        self._looked_at = time.monotonic()

    known = 0
    """The last event that is no news to the caller."""

    async def begin(self, process: Process) -> Sequence[LogEvent]:
        """Publish the run's first event, or find that it exists; its events so far."""
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
                msg_id=f"{self.run_id}:start:{uuid.uuid4().hex}",  # another caller's is a conflict
                headers=self._tracing.headers,
            )
        except Conflict as conflict:
            await self._continue(process, started, conflict.news)
            return conflict.news
        crashpoint("runner.after_start")
        stored = Stored(sequence, subject, b"", self._tracing.headers)
        return [LogEvent(sequence, subject, started, stored)]

    async def _continue(
        self, process: Process, wanted: RunStarted, events: Sequence[LogEvent]
    ) -> None:
        """The key's run exists: take it over if its process is gone, else wait with it."""
        earlier = RunState.of(self.run_id, events).started
        if earlier is None:
            raise UserError(
                f"run_key {self._config.run_key!r} belongs to a run that could not start; "
                "use another key"
            )
        name = self._plan.agent.name
        if earlier.graph.start != name:
            raise UserError(
                f"run_key {self._config.run_key!r} belongs to a run of agent "
                f"{earlier.graph.start!r}, not {name!r}; use another key"
            )
        if list(map(bytes, earlier.input)) != list(map(bytes, wanted.input)):
            logger.warning(
                "the run of this key was started with another input; its own input counts",
                extra={"run_id": self.run_id, "run_key": self._config.run_key},
            )
        self._is_elsewhere = True
        await self.adopt(process)

    async def adopt(self, process: Process) -> None:
        """Take the run over if nobody serves it any more. One of many that try succeeds."""
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
                )
            except Conflict:
                continue
            crashpoint("runner.after_move")
            await bring_sandboxes(process, self._config, state)
            self._is_elsewhere = False
            return

    def must_look(self, now: float) -> bool:
        """Is it time to see who works on the run? A keyed one may be taken from us, too."""
        if self._config.run_key is None:
            return False
        if not self._is_elsewhere and now < self._looked_at + LOOK_EVERY_S:
            return False
        self._looked_at = now
        return True

    async def _is_orphan(self, process: Process, host: str) -> bool:
        """Asked twice: after a restart of the server its clients are away for a moment."""
        if await process.bus.presence.is_served(f"tools-{host}"):
            return False
        await asyncio.gather(preload(), asyncio.sleep(0.5))  # we may need the model client soon
        return not await process.bus.presence.is_served(f"tools-{host}")
