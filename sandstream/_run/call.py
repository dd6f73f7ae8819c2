"""One call of the runner: it starts or continues a run, hosts the run's callables, and waits until
the run ends or needs a person's approval.

A run with a ``run_key`` outlives its caller (see start.py), and so does a run that waits for a
person. Any other run ends with its caller.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeGuard, TypeVar

from sandstream_actors.run.state import RunState as LogState
from sandstream_bus.errors import BusError, LogLost, StoreFull
from sandstream_bus.logs.follow import Begin
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CancelRequested, LiveEvent, RunDone, RunWaiting
from sandstream_bus.wire.subjects import run_id_of_key

from sandstream._hosting.final_output import final_output
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.outcomes import original
from sandstream._hosting.run_tracing import RunTracing
from sandstream._hosting.run_view import RunView
from sandstream._run.plan import RunPlan
from sandstream._run.process import Process
from sandstream._run.resume import RunResume, check_arguments
from sandstream._run.start import RunStart
from sandstream._surface.hook_points import check_run_hooks
from sandstream._surface.outcomes import attach_details, exception_of
from sandstream._surface.run_record import RunRecord
from sandstream._wire.ids import new_run_id
from sandstream._wire.options import check_guarded_conversation, compile_input, compile_options
from sandstream.agent import Agent
from sandstream.error_handlers import RunErrorHandlers
from sandstream.exceptions import UserError
from sandstream.items import TResponseInputItem
from sandstream.memory.session import Session, tell_id
from sandstream.result import CancelMode, RunResult, RunResultBase, RunResultStreaming
from sandstream.run_config import RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.run_state import RunState
from sandstream.stream_events import AgentUpdatedStreamEvent, RawResponsesStreamEvent

logger = logging.getLogger(__name__)

T = TypeVar("T")
OUTAGE_PATIENCE_S = 60.0
"""How long a caller waits for a server that disappeared during the run."""
FULL_PATIENCE_S = 10.0
"""How long a caller waits for space in a full store."""
ABANDON_PATIENCE_S = 5.0
"""How long a cancelled caller waits for its run to end and its sandbox to close."""


class _NotBegun(Exception):
    """The caller cancelled the run before its first event."""


class RunCall:
    """One call of the runner: from its arguments to its result."""

    def __init__(
        self,
        agent: Agent[Any],
        input: str | list[TResponseInputItem] | RunState[Any, Any],
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
        self._config = config
        self._process: Process | None = None
        self._context: RunContextWrapper[Any]
        self._input: str | list[TResponseInputItem]
        self._begin: RunStart | RunResume
        self._begun = 0
        self._stop_at_start: CancelMode | None = None
        """Set if the run is cancelled before it begins."""
        if isinstance(input, RunState):
            self._go_on(input, context, hooks, session, stream, conversation)
        else:
            self.run_id = run_id_of_key(config.run_key) if config.run_key else new_run_id()
            self._plan = RunPlan(agent, config, self.run_id, hooks=hooks)
            self._tracing = RunTracing(self.run_id, config)
            given = isinstance(context, RunContextWrapper)
            self._context = context if given else RunContextWrapper(context=context)
            self._max_turns = max_turns
            self._input = input
            first = self._plan.bound.get(self._plan.start)
            if first and _is_list(input):
                self._input = first.process_input(input)
            options = compile_options(
                config,
                max_turns=max_turns,
                stream=stream,
                error_handlers=error_handlers,
                session=session,
                **conversation,
            )
            check_guarded_conversation(agent, config, options)
            items = compile_input(self._input)
            is_text = isinstance(self._input, str)
            self._options = options
            self._begin = RunStart(
                self.run_id,
                self._plan,
                config,
                items,
                options,
                is_text=is_text,
                tracing=self._tracing,
            )
        self._bound = self._plan.bound
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
            options=self._options,
            tracing=self._tracing,
        )
        if isinstance(input, RunState) and isinstance(input.hosted, HostedRun):
            self._hosted.values |= input.hosted.values
            self._hosted.guardrails |= input.hosted.guardrails

    def _go_on(
        self,
        state: RunState[Any, Any],
        context: Any,
        hooks: Any,
        session: Session | None,
        stream: bool,
        conversation: dict[str, Any],
    ) -> None:
        """Continue an existing run: it keeps the settings that it began with."""
        state._check_agents(self._agent)
        check_arguments(state, session, conversation)
        self.run_id = state.record.run_id
        self._plan = RunPlan(self._agent, self._config, self.run_id, hooks=hooks)
        self._context = state.context
        if context is not None:
            is_wrapped = isinstance(context, RunContextWrapper)
            self._context.context = context.context if is_wrapped else context
        self._max_turns = state.record.state.options.max_turns
        self._input = state.given_input
        self._options = state.record.state.options
        self._tracing = RunTracing(self.run_id, self._config, saved=state.trace)
        self._begin = RunResume(state, self._config, stream=stream, tracing=self._tracing)

    # --- waiting for the result, or streaming it ----------------------------------------------

    async def run(self) -> RunResult:
        async with self._tracing:
            return await self._run()

    async def _run(self) -> RunResult:
        result = RunResult(**self._result_arguments())
        process = await self._open()
        try:
            view = await self._patiently(process, self._until_rest(result, process))
            await self._close_sandbox(result, view)
        except asyncio.CancelledError:
            await self._abandon(process)
            raise
        finally:
            process.remove_run(self.run_id, self._hosted)
        self._conclude(result, view)
        return result

    def run_streamed(self) -> RunResultStreaming:
        result = RunResultStreaming(cancel_run=self._cancel_stream, **self._result_arguments())
        result.run_loop_task = asyncio.ensure_future(self._stream_into(result))
        return result

    async def _stream_into(self, result: RunResultStreaming) -> None:
        error: BaseException | None = None
        try:
            async with self._tracing:
                await self._stream(result)
        except BaseException as raised:  # noqa: BLE001  raised by stream_events()
            error = raised
        finally:
            result._finish(error)

    async def _stream(self, result: RunResultStreaming) -> None:
        process = await self._open()
        try:
            view = self._view()
            await self._patiently(process, self._follow_into(result, view, process))
            await self._close_sandbox(result, view)
        except _NotBegun:
            self._show_what_was(result)
            return
        except asyncio.CancelledError:
            await self._abandon(process)
            raise
        finally:
            process.remove_run(self.run_id, self._hosted)
        if view.done is None or view.done.status != "cancelled":
            self._conclude(result, view)

    def _show_what_was(self, result: RunResultStreaming) -> None:
        """The run was cancelled before it began or continued: show only its past, if it has one."""
        if isinstance(self._begin, RunResume):
            view = self._view()
            for past in self._begin.past:
                view.feed(past.event, past.subject, past.sequence)
            result._take(view)
            result._set_state_maker(self._begin.state)
        else:
            result._set_state_maker(_nothing_to_resume)
        result._put(AgentUpdatedStreamEvent(result.last_agent))

    async def _until_rest(self, result: RunResult, process: Process) -> RunView:
        """Wait until the run ends, or until only a person's decision can continue it."""
        begin: Begin = self._start
        while True:
            first = await process.bus.follow.rest(
                self.run_id, begin=begin, is_at_rest=self._is_at_rest
            )
            events = await process.bus.log.read(self.run_id, after=max(0, first - 1))
            view = self._view()
            view.read(events)
            if view.done is not None or view.state.waiting is not None:
                await self._keep(result, view, process, events)
                return view
            begin = partial(_known, events)

    async def _follow_into(
        self, result: RunResultStreaming, view: RunView, process: Process
    ) -> None:
        events: list[LogEvent] = []
        following = process.bus.follow.run(self.run_id, deltas=True, begin=self._start)
        async with aclosing(following):
            async for event in following:
                if isinstance(event, LiveEvent):
                    result.current_turn = max(result.current_turn, event.turn)
                    result._put(RawResponsesStreamEvent(bytes(event.event)))
                    continue
                events.append(event)
                new_events = view.feed(event.event, event.subject, event.sequence)
                result._take(view)
                if event.sequence > self._begin.known:
                    for new_event in new_events:
                        result._put(new_event)
                elif event.sequence == self._begin.known and view.agent is not None:
                    result._put(AgentUpdatedStreamEvent(view.agent))
                if view.state.waiting is not None and event.sequence >= self._begun:
                    break
        await self._keep(result, view, process, events)

    async def _keep(
        self,
        result: RunResultBase,
        view: RunView,
        process: Process,
        events: Sequence[LogEvent],
    ) -> None:
        """Keep what ``to_state()`` needs, and tell the session its id."""
        if view.state.started is not None:
            tell_id(self._hosted.session, view.state.options.session)
        record = await RunRecord.read(process.bus, view.state, events)
        interruptions = view.interruptions
        result._set_state_maker(
            lambda: RunState(
                self._agent,
                record,
                self._context.copied(),
                interruptions=interruptions,
                hosted=self._hosted,
                trace=self._tracing.saved,
            )
        )

    def _is_at_rest(self, events: Sequence[LogEvent]) -> bool:
        if not any(isinstance(it.event, RunDone | RunWaiting) for it in events):
            return False
        state = LogState.of(self.run_id, events)
        return state.done is not None or state.waiting is not None

    async def _patiently(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        """Wait for ``work``, but raise if the bus stays in trouble for too long.

        The run stays in the log; with a ``run_key`` it can be continued.
        """
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=1.0)
                trouble = process.bus.connection.troubles.first
                if trouble is not None and not task.done():
                    lasts_s = time.monotonic() - trouble.since
                    if lasts_s > _patience_s(trouble.error):
                        if self._config.run_key is None:  # no other caller can continue it
                            process.in_background(
                                self._cancel("immediate", "its caller gave up", None)
                            )
                        raise trouble.error
                elif self._begin.must_look(time.monotonic()) and not task.done():
                    await self._begin.adopt(process)
            return task.result()
        finally:
            task.cancel()

    # --- starting ------------------------------------------------------------------------------

    async def _open(self) -> Process:
        self._process = process = await Process.of_this_loop()
        process.add_run(self.run_id, self._hosted)
        return process

    async def _start(self) -> Sequence[LogEvent]:
        assert self._process is not None
        if self._process.before_start is not None:
            await self._process.before_start(self.run_id)
        if self._stop_at_start is not None and not await self._begin.is_under_way(self._process):
            raise _NotBegun
        events = await self._begin.begin(self._process)
        self._begun = events[-1].sequence
        if self._stop_at_start is not None:  # meanwhile, or the run of its key was there before
            await self._cancel(self._stop_at_start)
        self._tracing.follow(self._process, known=self._begin.known)
        return events

    # --- ending --------------------------------------------------------------------------------

    async def _close_sandbox(self, result: RunResultBase, view: RunView) -> None:
        """The run closed its sandbox. Store the caller's own snapshot and the sandbox state."""
        if view.done is None:
            return
        for key, bound in self._bound.items():
            if bound.is_owned and await bound.was_used():
                await bound.finish()
                result.sandbox_states[key] = bound.session.state
                if bound.waits_for_memory and view.done.memory is not None:
                    await bound.remembered(result)
        if not self._plan.has_child_sandboxes or self._process is None:
            return
        for child in await self._process.children_of(self.run_id):
            for bound in child.bound.values():
                if bound.is_owned and await bound.was_used():
                    await bound.finish()

    def _conclude(self, result: RunResultBase, view: RunView) -> None:
        """Fill the result; raise if the run did not complete."""
        result._take(view)
        if view.done is None:  # it waits for people
            return
        error = exception_of(view.done, self.run_id)
        if error is not None:
            known = original(self._hosted, view.done.error) if view.done.error else None
            raised = attach_details(known or error, result.details())
            if self._begin.stored:
                raised.add_note(self._begin.stored)
            raise raised
        result.final_output = final_output(self._hosted, view, view.done)

    async def _abandon(self, process: Process) -> None:
        """The caller stopped waiting. Cancel a run without a key: nothing could continue it."""
        if self._config.run_key is not None or isinstance(self._begin, RunResume):
            return
        if not await self._ask_to_stop("immediate", "its caller was cancelled"):
            # the event loop is ending and has also cancelled the connection's tasks
            process.leave(it.session.bus_name for it in self._bound.values() if it.is_owned)
            return
        await self._see_the_end(process)
        for bound in self._bound.values():
            # the actor that closes the sandbox may end with this process
            try:
                if bound.is_owned:
                    async with asyncio.timeout(2 * ABANDON_PATIENCE_S):
                        await bound.closed(within_s=ABANDON_PATIENCE_S)
            except (TimeoutError, BusError):
                logger.warning("the run's sandbox is left", extra={"run_id": self.run_id})

    async def _see_the_end(self, process: Process) -> None:
        """Wait for the run's end: the harness that writes it may be in this process."""
        done = process.bus.subjects.done(self.run_id)
        start = process.bus.subjects.start(self.run_id, "*")
        try:
            async with asyncio.timeout(ABANDON_PATIENCE_S):
                if await process.bus.log.first_subject(start) is None:
                    return  # it never began
                while await process.bus.log.last(done) is None:
                    await asyncio.sleep(0.02)
        except (TimeoutError, BusError):
            logger.warning("the run's end was not seen", extra={"run_id": self.run_id})

    def _cancel_stream(self, mode: CancelMode) -> Awaitable[None] | None:
        """Before the run's first event only note the request, which would be lost otherwise."""
        if self._begun:
            return self._cancel(mode)
        if self._stop_at_start != "immediate":
            self._stop_at_start = mode
        return None

    async def _cancel(
        self, mode: CancelMode, reason: str = "", budget_s: float | None = 2.0
    ) -> None:
        await self._ask_to_stop(mode, reason, budget_s)

    async def _ask_to_stop(
        self, mode: CancelMode, reason: str, budget_s: float | None = 2.0
    ) -> bool:
        """Publish the request; return whether it is in the log."""
        process = self._process
        if process is None:
            return False
        message = CancelRequested(mode=mode, reason=reason)
        try:
            await process.bus.connection.publish(
                process.bus.subjects.cancel(self.run_id),
                await process.bus.codec.encode(message),
                msg_id=f"{self.run_id}:cancel:{mode}:{uuid.uuid4().hex}",  # maybe not the first
                budget_s=budget_s,
            )
        except BusError:
            logger.warning("the run could not be cancelled", extra={"run_id": self.run_id})
            return False
        return True

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


def _nothing_to_resume() -> RunState[Any, Any]:
    raise UserError("the run was cancelled before it began: there is no state to resume")


def _patience_s(error: BusError) -> float:
    """How long a caller waits for a fault to end."""
    if isinstance(error, LogLost):
        return 0.0  # waiting cannot bring the run back
    return FULL_PATIENCE_S if isinstance(error, StoreFull) else OUTAGE_PATIENCE_S


async def _known(events: Sequence[LogEvent]) -> Sequence[LogEvent]:
    return events


def _is_list(input: object) -> TypeGuard[list[Any]]:
    return isinstance(input, list)
