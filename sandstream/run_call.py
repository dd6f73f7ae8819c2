"""One call of the runner: publishes the run, hosts its callables, waits for its end.

A run with a ``run_key`` outlives its caller: the next caller waits with whoever works on it, or
takes it over if that process is gone. A run without one ends with its caller.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, TypeGuard, TypeVar

from sandstream_actors.deployed import resolved
from sandstream_actors.model import preload
from sandstream_actors.run_state import RunState
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.direct import Stored
from sandstream_bus.errors import BusError, StoreFull
from sandstream_bus.headers import TRACEPARENT, new_traceparent
from sandstream_bus.log import Conflict, LogEvent
from sandstream_bus.messages import CancelRequested, LiveEvent, RunMoved, RunStarted
from sandstream_bus.sandboxes import OWN_NODE
from sandstream_bus.subjects import run_id_of_key

from sandstream.agent import Agent
from sandstream.error_handlers import RunErrorHandlers
from sandstream.exceptions import UserError
from sandstream.hosting.final_output import final_output
from sandstream.hosting.hooks import check_run_hooks
from sandstream.hosting.hosted_run import HostedRun
from sandstream.ids import new_run_id
from sandstream.items import TResponseInputItem
from sandstream.memory.session import Session
from sandstream.outcomes import attach_details, exception_of
from sandstream.process import Process
from sandstream.result import RunResult, RunResultBase, RunResultStreaming
from sandstream.run_config import RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.run_options import compile_input, compile_options, started_now
from sandstream.run_plan import RunPlan
from sandstream.run_view import RunView
from sandstream.stream_events import RawResponsesStreamEvent

logger = logging.getLogger(__name__)

T = TypeVar("T")
OUTAGE_PATIENCE_S = 60.0
"""How long a caller waits for a server that went away in mid-run."""
FULL_PATIENCE_S = 10.0
"""How long a caller waits for a full store to be freed."""
ABANDON_PATIENCE_S = 5.0
"""How long a caller that was cancelled waits for its sandbox to be closed."""
LOOK_EVERY_S = 10.0
"""How often the caller of a keyed run looks whether it is still this process's."""


class RunCall:
    """One call of the runner: from its arguments to its result."""

    def __init__(
        self,
        agent: Agent[Any],
        input: str | list[TResponseInputItem],
        *,
        context: Any,
        max_turns: int | None,
        config: RunConfig,
        error_handlers: RunErrorHandlers,
        stream: bool,
        hooks: Any | None = None,
        session: Session | None = None,
        **conversation: Any,
    ) -> None:
        check_run_hooks(hooks)
        self._agent = agent
        self._input = input
        self._max_turns = max_turns
        self._config = config
        self.run_id = run_id_of_key(config.run_key) if config.run_key else new_run_id()
        self._plan = RunPlan(agent, config, self.run_id, hooks=hooks)
        self._bound = self._plan.bound
        first = self._bound.get(self._plan.start)
        if first and _is_list(input):
            self._input = first.process_input(input)
        self._items = compile_input(self._input)
        self._options = compile_options(
            config,
            max_turns=max_turns,
            stream=stream,
            error_handlers=error_handlers,
            session=session,
            **conversation,
        )
        given = isinstance(context, RunContextWrapper)
        self._context = context if given else RunContextWrapper(context=context)
        self._hosted = HostedRun(
            self._plan.found.own.agents,
            self._context,
            config,
            error_handlers,
            working=self._plan.working,
            found=self._plan.found,
            hooks=hooks,
            session=session,
            bound=self._bound,
        )
        self._process: Process | None = None
        self._is_elsewhere = False
        """Another process works on the run; we wait with it, and take over if it dies."""
        self._looked_at = time.monotonic()

    # --- the two ways to wait ------------------------------------------------------------------

    async def run(self) -> RunResult:
        result = RunResult(**self._result_arguments())
        process = await self._open()
        try:
            work = process.bus.follow.done(self.run_id, begin=self._start)
            await self._patiently(process, work)
            view = self._view()
            for event in await process.bus.log.read(self.run_id):
                view.feed(event.event, event.subject)
            await self._close_sandbox(result)
        except asyncio.CancelledError:
            await self._abandon(process)
            raise
        finally:
            process.remove_run(self.run_id, self._hosted)
        self._conclude(result, view)
        return result

    def run_streamed(self) -> RunResultStreaming:
        result = RunResultStreaming(cancel_run=self._cancel, **self._result_arguments())
        result.run_loop_task = asyncio.ensure_future(self._stream_into(result))
        return result

    async def _stream_into(self, result: RunResultStreaming) -> None:
        error: BaseException | None = None
        try:
            process = await self._open()
            try:
                view = self._view()
                await self._patiently(process, self._follow_into(result, view, process))
                await self._close_sandbox(result)
            except asyncio.CancelledError:
                await self._abandon(process)
                raise
            finally:
                process.remove_run(self.run_id, self._hosted)
            if view.done is None or view.done.status != "cancelled":
                self._conclude(result, view)
        except BaseException as raised:  # noqa: BLE001  handed to whoever iterates the events
            error = raised
        finally:
            result.finish(error)

    async def _follow_into(
        self, result: RunResultStreaming, view: RunView, process: Process
    ) -> None:
        async for event in process.bus.follow.run(self.run_id, deltas=True, begin=self._start):
            if isinstance(event, LiveEvent):
                result.current_turn = max(result.current_turn, event.turn)
                result.put(RawResponsesStreamEvent(bytes(event.event)))
            elif isinstance(event, LogEvent):
                new_events = view.feed(event.event, event.subject)
                result.take(view)
                for new_event in new_events:
                    result.put(new_event)

    async def _patiently(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Wait for ``work``, but not for ever while the bus is in trouble: then the caller hears.

        The run stays in the log; with a ``run_key`` it can be continued.
        """
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=1.0)
                trouble = process.bus.connection.trouble
                if trouble is not None and not task.done():
                    lasts_s = time.monotonic() - trouble.since
                    is_full = isinstance(trouble.error, StoreFull)
                    if lasts_s > (FULL_PATIENCE_S if is_full else OUTAGE_PATIENCE_S):
                        if self._config.run_key is None:  # nobody else will ever want it
                            process.in_background(
                                self._cancel("immediate", "its caller gave up", None)
                            )
                        raise trouble.error
                elif self._must_look(time.monotonic()) and not task.done():
                    await self._adopt(process)
            return task.result()
        finally:
            task.cancel()

    # --- starting ------------------------------------------------------------------------------

    async def _open(self) -> Process:
        self._process = process = await Process.of_this_loop()
        process.add_run(self.run_id, self._hosted)
        return process

    async def _start(self) -> Sequence[LogEvent]:
        """Publish the run's first event, or find that it exists; its events so far."""
        process = self._process
        assert process is not None
        pool = self._pool(process)
        graph = await self._plan.graph(process.pool)
        started = RunStarted(
            graph=await resolved(graph, process.bus.agents),
            input=self._items,
            options=started_now(self._options),
            pool=pool,
            key=self._config.run_key,
            is_text=isinstance(self._input, str),
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
                headers={TRACEPARENT: new_traceparent()},
            )
        except Conflict as conflict:
            await self._continue(process, started, conflict.news)
            return conflict.news
        crashpoint("runner.after_start")
        return [LogEvent(sequence, subject, started, Stored(sequence, subject, b"", {}))]

    async def _continue(
        self, process: Process, wanted: RunStarted, events: Sequence[LogEvent]
    ) -> None:
        """The key's run exists: take it over if its process is gone, else wait with it."""
        first = events[0]
        if not isinstance(first.event, RunStarted):
            raise UserError(
                f"run_key {self._config.run_key!r} belongs to a run that could not start; "
                "use another key"
            )
        earlier = first.event
        if earlier.graph.start != self._agent.name:
            raise UserError(
                f"run_key {self._config.run_key!r} belongs to a run of agent "
                f"{earlier.graph.start!r}, not {self._agent.name!r}; use another key"
            )
        if list(map(bytes, earlier.input)) != list(map(bytes, wanted.input)):
            logger.warning(
                "the run of this key was started with another input; its own input counts",
                extra={"run_id": self.run_id, "run_key": self._config.run_key},
            )
        self._is_elsewhere = True
        await self._adopt(process)

    async def _adopt(self, process: Process) -> None:
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
            pool = self._pool(process)
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
            await self._bring_sandboxes(process, state)
            self._is_elsewhere = False
            return

    async def _bring_sandboxes(self, process: Process, state: RunState) -> None:
        """Sandboxes of the lost process: its machine's are found again by our own actor; those of
        another machine are restored from their checkpoint, as nobody else serves them.
        """
        client: Any = self._config.sandbox.client if self._config.sandbox else None
        if client is None or state.started is None:
            return
        asked = [it.sandbox.spec.node for it in state.started.graph.agents.values() if it.sandbox]
        for node in {*asked, *(opened.node for opened in state.sandboxes.values())}:
            if node.startswith(OWN_NODE):
                # what the run needs from now on is asked for after this state
                await process.adopt_node(await client.link.node(), node, state.last_seq + 1)

    def _must_look(self, now: float) -> bool:
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

    def _pool(self, process: Process) -> str:
        return self._config.harness_pool or process.settings.harness_pool or process.pool

    # --- ending --------------------------------------------------------------------------------

    async def _close_sandbox(self, result: RunResultBase) -> None:
        """The run has closed it; what is left is the caller's own snapshot, and its state."""
        for key, bound in self._bound.items():
            if bound.is_owned and await bound.was_used():
                await bound.finish()
                result.sandbox_states[key] = bound.session.state

    def _conclude(self, result: RunResultBase, view: RunView) -> None:
        """Fill the result; raise if the run did not complete."""
        result.take(view)
        assert view.done is not None
        error = exception_of(view.done, self.run_id)
        if error is not None:
            message = view.done.error.message if view.done.error else ""
            original = self._hosted.exceptions.get(message)
            raise attach_details(original or error, result.details())
        result.final_output = final_output(self._hosted, view, view.done)

    async def _abandon(self, process: Process) -> None:
        """The caller stopped waiting. A run without a key has nobody else who wants it."""
        if self._config.run_key is not None:
            return
        await self._cancel("immediate", "its caller was cancelled")
        for bound in self._bound.values():
            # the end of this process would stop the actor that closes it
            try:
                if bound.is_owned:
                    await bound.closed(within_s=ABANDON_PATIENCE_S)
            except BusError:
                logger.warning("the run's sandbox is left", extra={"run_id": self.run_id})

    async def _cancel(self, mode: Any, reason: str = "", budget_s: float | None = 2.0) -> None:
        process = self._process
        if process is None:
            return
        message = CancelRequested(mode=mode, reason=reason)
        try:
            await process.bus.connection.publish(
                process.bus.subjects.cancel(self.run_id),
                await process.bus.codec.encode(message),
                msg_id=f"{self.run_id}:cancel:{mode}",
                budget_s=budget_s,
            )
        except BusError:
            logger.warning("the run could not be cancelled", extra={"run_id": self.run_id})

    def _view(self) -> RunView:
        return self._hosted.view()

    def _result_arguments(self) -> dict[str, Any]:
        return {
            "input": self._input,
            "context_wrapper": self._context,
            "starting_agent": self._agent,
            "max_turns": self._max_turns,
            "run_id": self.run_id,
            "omit_reasoning_ids": self._config.reasoning_item_id_policy == "omit",
        }


def _is_list(input: object) -> TypeGuard[list[Any]]:
    return isinstance(input, list)
