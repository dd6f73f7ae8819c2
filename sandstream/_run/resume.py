"""Continues a run from a saved state: the same run, in the same log.

The run moves to this process. Then the state's decisions and input are written, each only if it
still applies. Decisions that others made in the meantime are accepted if they are the same. If the
log does not contain the run, its events are restored from the state.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sandstream_actors.harness.alarms import Alarms
from sandstream_actors.run.state import RunState as LogState
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.runs import Conflict, LogEvent
from sandstream_bus.nats.direct import Stored
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    InputStaged,
    RunEvent,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
)
from sandstream_bus.wire.subjects import RunId
from sandstream_bus.wire.trace_context import call_span_id

from sandstream._hosting.run_tracing import RunTracing
from sandstream._run.process import Process
from sandstream._run.takeover import bring_sandboxes, home_of, pool_for
from sandstream._surface.approval_records import Decision
from sandstream._surface.run_record import Past
from sandstream._wire.options import compile_input
from sandstream.approvals import first_decision, told
from sandstream.exceptions import UserError
from sandstream.items import ToolApprovalItem
from sandstream.memory.session import Session, known_id
from sandstream.run_config import RunConfig
from sandstream.run_state import RunState

BY = "state"
"""The ``by`` of decisions and input that come from a resumed state."""
_sorted = msgspec.json.Encoder(order="sorted").encode
_Step = Callable[[LogState], tuple[str, RunEvent] | None]
"""The next event to write, or None; raises if the step no longer applies."""


class RunResume:
    """The continuation of a saved run by this process."""

    def __init__(
        self,
        saved: RunState[Any, Any],
        config: RunConfig,
        *,
        stream: bool,
        tracing: RunTracing,
    ) -> None:
        self.run_id = saved.record.run_id
        self._saved = saved
        self._config = config
        self._stream = stream
        self._tracing = tracing
        self._events: list[LogEvent] = []
        self._news_from = 0
        self.known = 0
        """The last event that the caller already knows."""
        self.stored = ""

    @property
    def past(self) -> Sequence[Past]:
        """The run's events as the state has them."""
        return self._saved.record.log_of(self.run_id)

    def state(self) -> RunState[Any, Any]:
        """The state from which the run continues."""
        return self._saved

    async def is_under_way(self, process: Process) -> bool:
        """Always False: the run is at rest, and a cancelled resumption leaves it so."""
        return False

    async def begin(self, process: Process) -> Sequence[LogEvent]:
        """Continue the run; return all of its events so far."""
        bus = process.bus
        self._events = await bus.log.read(self.run_id)
        if not self._events:
            await self._restore(process)
            self._events = await bus.log.read(self.run_id)
        self._news_from = self._find_news()
        self.known = self._events[self._news_from - 1].sequence
        state = LogState.of(self.run_id, self._events)
        crashpoint("runner.before_resume")
        steps = [await self._answer(process, *it) for it in self._answers()]
        steps.append(lambda it: self._more_input(process, it))
        for step in steps:
            step(state)  # raise for a step that no longer applies before the run moves here
        if home_of(state) != process.pool:
            await bring_sandboxes(process, self._config, state)
        await self._bring_children(process)
        await self._write(process, state, lambda it: self._move(process, it))
        for step in [*steps, lambda it: self._reopen(process, it)]:
            await self._write(process, state, step)
        crashpoint("runner.after_resume")
        return await bus.log.read(self.run_id)

    async def adopt(self, process: Process) -> None:
        """Do nothing: another process that resumes the same state may take the run."""

    def must_look(self, now: float) -> bool:
        return False

    # --- the log and the state -----------------------------------------------------------------

    def _find_news(self) -> int:
        """The index of the first event that the state does not know."""
        past = self._saved.record.log_of(self.run_id)
        first = self._events[0].event
        if isinstance(first, RunRestored):
            body = msgspec.json.decode(first.events[0].body) if first.events else None
            if len(first.events) == len(past) and _sorted(body) == _plain(past[0].event):
                return 1  # this state brought the run here
        last = self._saved.record.last_sequence
        count = sum(event.sequence <= last for event in self._events)
        is_same = _plain(first) == _plain(past[0].event)
        if is_same and count == len(past) and self._events[count - 1].sequence == last:
            return count
        raise UserError(
            f"the log here has another run {self.run_id}, or only a part of this one: resume the "
            "state with the server that it was written with, or with one that does not know the run"
        )

    @property
    def _news(self) -> Sequence[LogEvent]:
        return self._events[self._news_from :]

    async def _restore(self, process: Process) -> None:
        """The log does not have the run: restore its events and those of its open child runs."""
        pool = pool_for(self._config, process)
        for run in reversed(self._saved.record.runs):  # children first: their parent wakes them
            events = self._saved.record.past(run)
            try:
                await process.bus.log.append(
                    run,
                    process.bus.subjects.start(run, pool),
                    RunRestored(events=events, pool=pool, host=process.pool),
                    after=0,
                    msg_id=f"{run}:restore:{uuid.uuid4().hex}",
                    headers=self._headers_of(run),
                )
            except Conflict:
                continue  # another process restored it
            crashpoint("runner.after_restore")
            await self._arm(process, LogState.of(run, await process.bus.log.read(run)))

    def _headers_of(self, run: RunId) -> dict[str, str]:
        """The span of a child run is below the call that it answers."""
        headers = self._tracing.headers
        first = self._saved.record.log_of(run)[0].event
        link = first.parent if isinstance(first, RunStarted) else None
        parent = self._tracing.parent
        if not headers or link is None or parent is None:
            return headers
        above = parent._replace(span_id=call_span_id(link.run, link.call))
        return {TRACEPARENT: above.header}

    async def _bring_children(self, process: Process) -> None:
        """Move open child runs here at once. If their parent moved them after a decision, they
        might already be at work, and would do the same work twice.
        """
        pool = pool_for(self._config, process)
        wanted = (pool, process.pool, pool)
        for run in self._saved.record.runs[1:]:
            while True:
                state = LogState.of(run, await process.bus.log.read(run))
                if state.started is None or state.done is not None or state.agent.pool:
                    break  # gone, or the agent of a worker: its parent takes care of it
                places = state.places
                if (places.pool, home_of(state), places.parent_pool) == wanted:
                    break
                moved = RunMoved(pool=pool, host=process.pool, parent_pool=pool)
                try:
                    await process.bus.log.append(
                        run,
                        process.bus.subjects.turn(run, pool),
                        moved,
                        after=state.last_seq,
                        msg_id=f"{run}:resume:{uuid.uuid4().hex}",
                    )
                except Conflict:
                    continue
                break

    async def _arm(self, process: Process, state: LogState) -> None:
        """Arm the run's timers, which are on the other server; approval time limits start again."""
        alarms = Alarms(process.bus)
        await alarms.arm_deadline(state)
        for question in state.open_approvals():
            if not question.run:
                await alarms.arm_expiry(state, question)

    async def _write(self, process: Process, state: LogState, step: _Step) -> None:
        """Write the event of a step, decided on the newest state."""
        while True:
            wanted = step(state)
            if wanted is None:
                return
            subject, message = wanted
            try:
                sequence = await process.bus.log.append(
                    self.run_id,
                    subject,
                    message,
                    after=state.last_seq,
                    msg_id=f"{self.run_id}:resume:{uuid.uuid4().hex}",
                )
            except Conflict as conflict:
                self._events.extend(conflict.news)
                state.fold(conflict.news)
                continue
            event = LogEvent(sequence, subject, message, Stored(sequence, subject, b"", {}))
            self._events.append(event)
            state.fold([event])
            return

    # --- the steps ----------------------------------------------------------------------------

    def _move(self, process: Process, state: LogState) -> tuple[str, RunEvent] | None:
        is_here = home_of(state) == process.pool
        if is_here and state.options.stream == self._stream:
            return None
        pool = pool_for(self._config, process)
        moved = RunMoved(pool=pool, host=process.pool, stream=self._stream)
        return process.bus.subjects.turn(self.run_id, pool), moved

    def _answers(self) -> list[tuple[ToolApprovalItem, Decision]]:
        """The state's decisions on its open approvals. Decisions for one call come before those for
        all calls of a tool, because they are exceptions to them.
        """
        approvals = self._saved.context.approvals
        found = [(item, approvals.for_item(item)) for item in self._saved.get_interruptions()]
        answers = [(item, decision) for item, decision in found if decision is not None]
        return sorted(answers, key=lambda it: it[1].always)

    async def _answer(self, process: Process, item: ToolApprovalItem, decision: Decision) -> _Step:
        child = item.run_id if item.run_id and item.run_id != self.run_id else ""
        below = await process.bus.log.read(RunId(child)) if child else []

        def step(now: LogState) -> tuple[str, RunEvent] | None:
            earlier = first_decision(self._news, item.call, item.call_id or "", run=child)
            earlier = earlier or first_decision(below, item.call, item.call_id or "")
            if earlier is not None:
                if earlier.decided.approve == decision.approve:
                    return None
                raise UserError(
                    f"the state of run {self.run_id} is out of date: the call of {item.tool_name} "
                    f"({item.call_id}) {told(earlier)} after the state was saved. Use the "
                    "run's newest state"
                )
            is_open = any((it.run, it.call) == (child, item.call) for it in now.open_approvals())
            if now.done is not None or not is_open:
                raise UserError(
                    f"the state of run {self.run_id} is out of date: the call of {item.tool_name} "
                    f"({item.call_id}) no longer waits, because {_what_happened(now)}"
                )
            message = ApprovalDecided(
                call=item.call,
                approve=decision.approve,
                message=decision.message,
                always=decision.always,
                by=BY,
                run=child,
            )
            return process.bus.subjects.approval_decided(self.run_id), message

        return step

    def _more_input(self, process: Process, state: LogState) -> tuple[str, RunEvent] | None:
        """Write the state's input, even if empty for a completed run: its model is asked again."""
        before = self._saved.record.state.done
        is_complete = before is not None and before.status == "completed"
        pending = self._saved.pending_input
        if not pending and not is_complete:
            return None
        if any(isinstance(it.event, InputStaged) and it.event.by == BY for it in self._news):
            return None  # an earlier resumption of this state has written it
        if state.done is not None and before is None:
            raise UserError(
                f"the run {self.run_id} cannot read more input: {_what_happened(state)}"
            )
        staged = InputStaged(input=compile_input(pending), by=BY)
        return process.bus.subjects.input(self.run_id), staged

    def _reopen(self, process: Process, state: LogState) -> tuple[str, RunEvent] | None:
        if state.done is None or self._saved.record.state.done is None:
            return None
        if any(isinstance(it.event, RunReopened) for it in self._news):
            return None
        pool = state.places.pool
        reopened = RunReopened(reason="resumed from a saved state")
        return process.bus.subjects.turn(self.run_id, pool), reopened


def check_arguments(
    saved: RunState[Any, Any], session: Session | None, conversation: dict[str, Any]
) -> None:
    """Check that a resumed run keeps its conversation, and gets its host session object again."""
    options = saved.record.state.options
    for name, value in conversation.items():
        if value and value != getattr(options, name):
            raise UserError(f"{name}: a resumed run continues the conversation that it began with")
    use = options.session
    given = known_id(session) if session is not None else ""
    if session is not None and (use is None or given not in (use.id, "")):
        began = f"with the session {use.id!r}" if use else "without a session"
        raise UserError(f"the run began {began}; resume it in the same way")
    if use is not None and use.kind == "host" and session is None:
        raise UserError(f"the run keeps the session {use.id!r}: give Runner.run(session=...) again")


def _plain(event: RunEvent) -> bytes:
    """For comparisons: the application may have stored the state with another order of keys."""
    return _sorted(msgspec.json.decode(msgspec.json.encode(event)))


def _what_happened(state: LogState) -> str:
    if state.done is None:
        return f"the run continued to turn {state.turn}"
    why = f": {state.done.error.message}" if state.done.error else ""
    return f"the run has ended ({state.done.status}{why})"
