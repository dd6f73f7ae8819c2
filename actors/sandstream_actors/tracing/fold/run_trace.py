"""Fold one run's events into spans. Pure: the same events give the same spans, including ids.

Events after a run's end (late results, sandboxes that close) are not part of its trace: a fold at
the end and a fold a week later must give the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from sandstream_bus.errors import MessageError
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.attempts import WORKER_LENGTH, attempt_of
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    ErrorInfo,
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TurnRequested,
)
from sandstream_bus.wire.specs import AgentSpec, RunOptions
from sandstream_bus.wire.subjects import RunId
from sandstream_bus.wire.trace_context import TraceContext, call_span_id, span_id_of, trace_id_of

from sandstream_actors.run.state import RunState
from sandstream_actors.run.takeovers import REMARKS
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold.agent_spans import AgentSpans
from sandstream_actors.tracing.fold.approval_spans import ApprovalSpans
from sandstream_actors.tracing.fold.call_spans import (
    guardrail_attributes,
    handoff_target,
    shape_of,
)
from sandstream_actors.tracing.fold.contents import (
    FEW_BYTES,
    MANY_BYTES,
    MAX_BYTES,
    chat_contents,
    run_contents,
    tool_contents,
)
from sandstream_actors.tracing.fold.hop_spans import HopSpans
from sandstream_actors.tracing.fold.hops import cause_of
from sandstream_actors.tracing.fold.model_spans import (
    answer_attributes,
    chat_name,
    error_type,
    failed_in_model,
    model_of,
    note_retries,
    request_attributes,
)
from sandstream_actors.tracing.fold.run_start import metadata_attributes, start_of
from sandstream_actors.tracing.fold.span_list import SpanList
from sandstream_actors.tracing.fold.takeovers import RunTakeovers
from sandstream_actors.tracing.fold.times import MS, began_ns, nanoseconds
from sandstream_actors.tracing.fold.tries import Tried
from sandstream_actors.tracing.fold.withheld import without_words
from sandstream_actors.tracing.span import Attributes, Span, SpanEvent

_SAID_MEANWHILE = (InputStaged, CancelRequested)
"""Events that a waiting run can receive without continuing."""


class RunTrace:
    """The trace of one run, from its log.

    ``contents`` also collects contents (``Span.contents``). ``quotes`` includes error messages,
    which can quote contents. A run can forbid both.
    """

    def __init__(self, run: str, *, contents: bool = False, quotes: bool = True) -> None:
        self.run = run
        self._facts = RunFacts(run=run, trace_id=trace_id_of(run), root=run)
        self._list = SpanList(run)
        self._hops = HopSpans(self._list)
        self._agents = AgentSpans(self._list)
        self._options = RunOptions()
        self._specs: dict[str, AgentSpec] = {}
        self._calls: dict[str, tuple[CallRequested, Span, int]] = {}
        """The open calls: the request, its span, its sequence in the log."""
        self._takeovers = RunTakeovers(self._list, self._hops)
        self._is_deferred = False
        self._approvals = ApprovalSpans(self._list)
        self._wait: Span | None = None
        self._again = ""
        self._moves = 0
        self._reopens = 0
        self._answered_after = 0
        self._handed_by_call = False
        self._read_bytes = 0
        self._may_quote = quotes
        self._state = RunState(RunId(run)) if contents else None

    @classmethod
    def of(
        cls, run: str, events: Iterable[LogEvent], *, contents: bool = False, quotes: bool = True
    ) -> RunTrace:
        trace = cls(run, contents=contents, quotes=quotes)
        trace.fold(events)
        return trace

    def fold(self, events: Iterable[LogEvent]) -> None:
        for event in events:
            self.apply(event)

    def spans(self) -> list[Span]:
        """All spans so far, parents before children; open spans have no end."""
        return self._list.in_order()

    def facts(self) -> RunFacts:
        return self._facts

    # --- the fold ------------------------------------------------------------------------------

    def apply(self, event: LogEvent) -> None:
        if event.sequence <= self._facts.last_seq:
            return
        if self._facts.is_over and not isinstance(event.event, RunReopened):
            return
        is_remark = isinstance(event.event, REMARKS)
        if is_remark and not self._agents.begun:
            return  # any outside user may have sent it, before the run began
        now = self._list.tick(event.sequence, nanoseconds(event.stored.time))
        if not self._agents.begun:
            self._begin(event, now)
        if self._facts.truncated and not is_remark and TRACEPARENT in event.stored.headers:
            self._facts.traced = True
        self._facts.last_seq = event.sequence
        if self._facts.status == "waiting" and not isinstance(event.event, _SAID_MEANWHILE):
            self._facts.status = "running"
        if isinstance(event.event, RunReopened):
            self._reopen(now)
        attempt = attempt_of(event.stored.headers)
        new, lost = self._takeovers.note(event.event, attempt, now)
        if lost is not None:
            self._agents.remark(lost.event)
        self._facts.takeovers = self._takeovers.count
        tried = Tried(attempt, new)
        self._hops.note(event, now, self._agents.current, _duration_ns(event.event), tried)
        message = event.event if self._may_quote else without_words(event.event)
        self._take(event, message, now)
        if self._state is not None:
            try:
                self._state.fold([event])
            except (*NOT_JSON, MessageError):
                self._state = None  # contents cannot be shown from here on; the rest can

    def _take(self, event: LogEvent, message: RunEvent, now: int) -> None:
        match message:
            case RunStarted():
                pass  # handled by _begin
            case TurnRequested():
                self._on_turn(message, now)
            case ModelAnswered():
                self._on_answer(event, message, now)
            case ModelDeferred():
                self._on_deferred(event, message, now)
            case CallRequested():
                self._on_call(event, message, now)
            case CallFinished():
                self._on_result(message, now)
            case CallStarted():
                self._on_call_started(message, now)
            case ApprovalRequested():
                self._approvals.ask(message, self._agents.current, self._again, now)
            case ApprovalDecided():
                self._approvals.decide(message, now)
            case ConversationOpened():
                self._on_conversation(now)
            case RunWaiting():
                self._facts.status = "waiting"
                self._hops.finish()
                self._remark("run.waiting", now)
            case CancelRequested():
                self._remark("run.cancel", now, {"sandstream.cancel.mode": message.mode})
            case InputStaged():
                self._remark("run.input", now)
            case RunMoved():
                self._moves += 1
                self._again = f":m{self._moves}r{self._reopens}"
                self._facts.pool = message.pool
                self._remark("run.moved", now, {"sandstream.pool": message.pool})
            case RunDone():
                self._on_done(event, message, now)
            case RunRestored() | RunReopened() | ChildWaiting():
                pass
            case _:
                assert_never(message)

    # --- beginning and end ---------------------------------------------------------------------

    def _begin(self, event: LogEvent, now: int) -> None:
        started = start_of(event.event)
        given = TraceContext.parse(event.stored.headers.get(TRACEPARENT))
        facts = self._facts
        if started is not None:
            facts.root = started.parent.root if started.parent else self.run
            facts.parent = started.parent.run if started.parent else ""
            self._take_start(started)
        # a task that was refused has only its end
        facts.truncated = not isinstance(event.event, RunStarted | RunRestored | RunDone)
        if facts.truncated:  # the lost part said what may be traced, so assume nothing may
            facts.traced = self._may_quote = False
            self._state = None
        facts.trace_id = given.trace_id if given else trace_id_of(facts.root)
        facts.started_ns = now
        # only the first event names a span of the caller; later ones name the run's own
        parent = given.span_id if given and not facts.truncated else ""
        self._list.trace_id = facts.trace_id
        self._list.sampled = given.sampled if given else True
        self._agents.begin(facts.first_agent, self._spec(), parent, now, self._run_attributes())

    def _take_start(self, started: RunStarted) -> None:
        facts, options = self._facts, started.options
        self._options = options
        self._specs = dict(started.graph.agents)
        facts.agent = facts.first_agent = started.graph.start
        facts.workflow = options.workflow_name
        facts.group_id = options.group_id or ""
        facts.session = options.session.id if options.session else ""
        facts.key = started.key or ""
        facts.pool = started.pool
        facts.traced = options.traced
        if not options.trace_contents:
            self._may_quote = False
            self._state = None

    def _run_attributes(self) -> Attributes:
        facts = self._facts
        attributes: Attributes = {}
        conversation = facts.session or self._options.conversation_id or facts.group_id
        for name, value in (
            (semconv.WORKFLOW_NAME, facts.workflow),
            (semconv.CONVERSATION_ID, conversation),
            (semconv.GROUP_ID, facts.group_id),
            (semconv.SESSION_ID, facts.session),
            (semconv.RUN_ROOT, facts.root if facts.root != self.run else ""),
        ):
            if value:
                attributes[name] = value
        if facts.truncated:
            attributes[semconv.RUN_TRUNCATED] = True
        return attributes | metadata_attributes(self._options)

    def _reopen(self, now: int) -> None:
        self._reopens += 1
        self._again = f":m{self._moves}r{self._reopens}"
        facts = self._facts
        facts.status, facts.ended_ns, facts.error = "running", 0, None
        self._agents.reopen(self._reopens, facts.agent, self._spec(), now, self._run_attributes())

    def _on_done(self, event: LogEvent, done: RunDone, now: int) -> None:
        facts = self._facts
        if failed_in_model(done.error) and self._answered_after < cause_of(event):
            assert done.error is not None
            began = max(now - _duration_ns(done), facts.started_ns)
            span = self._chat(event, began, now, f"t{done.turns + 1}:failed", error=done.error)
            self._count_retries(span, 0)
        facts.status, facts.ended_ns, facts.error = done.status, now, done.error
        facts.agent, facts.turns, facts.usage = done.agent, done.turns, done.usage
        contents = run_contents(self._state.started, done) if self._state is not None else {}
        self._hops.finish()
        self._calls.clear()
        self._approvals.clear()
        self._agents.end(done, now, contents)
        if done.status == "completed":  # for example a stream that was not read to its end
            self._list.close_all(now, "", "")
        else:
            self._list.close_all(now, "unfinished", f"the run has ended: {done.status}")

    # --- turns ---------------------------------------------------------------------------------

    def _on_turn(self, turn: TurnRequested, now: int) -> None:
        self._end_wait(now)
        self._specs.update(turn.agents)
        if turn.reason != "handoff":
            return
        before, self._facts.agent = self._facts.agent, turn.agent
        names: Attributes = {semconv.HANDOFF_FROM: before, semconv.HANDOFF_TO: turn.agent}
        if not self._handed_by_call:
            span = self._list.open(
                span_id_of(self.run, f"handoff:{self._list.sequence}"),
                f"handoff {before} to {turn.agent}",
                "handoff",
                parent=self._hops.working or self._agents.current,
                start_ns=now,
                agent=before,
                attributes=names,
            )
            self._list.close(span, now)
        self._handed_by_call = False
        self._agents.hand_over(turn.agent, self._spec(), now)

    def _on_answer(self, event: LogEvent, answered: ModelAnswered, now: int) -> None:
        facts = self._facts
        self._end_wait(now)
        facts.turns = max(facts.turns, answered.turn)
        facts.model = answered.model or model_of(self._spec())
        facts.usage = facts.usage.plus(answered.usage)
        self._answered_after = max(self._answered_after, cause_of(event))
        asked = self._calls.pop(f"t{answered.turn}-model", None)
        if asked is not None:  # a model object of the user: its call already has a span
            span = asked[1]
            self._close_call(span, now, answered.duration_ms, asked[2])
        else:
            began = began_ns(now, answered.duration_ms, facts.started_ns)
            span = self._chat(event, began, now, f"t{answered.turn}:model")
        span.attributes |= answer_attributes(answered)
        self._count_retries(span, note_retries(span, answered))
        if self._state is not None:
            most = MAX_BYTES if self._read_bytes < MANY_BYTES else FEW_BYTES
            span.contents = chat_contents(self._state, answered, most)
            self._read_bytes += len(str(span.contents.get(semconv.INPUT_MESSAGES, "")))

    def _count_retries(self, span: Span, count: int) -> None:
        """Add one if the request had been deferred."""
        count += self._is_deferred
        self._is_deferred = False
        if count:
            self._facts.retries += count
            span.attributes[semconv.RETRIES] = count

    def _on_deferred(self, event: LogEvent, deferred: ModelDeferred, now: int) -> None:
        self._end_wait(now)
        began = began_ns(now, deferred.duration_ms, self._facts.started_ns)
        what = f"t{deferred.turn}:try{deferred.attempt}"
        span = self._chat(event, began, now, what, error=deferred.error)
        self._count_retries(span, 0)
        self._is_deferred = True
        span.attributes |= {
            semconv.RETRY_ATTEMPT: deferred.attempt,
            semconv.RETRY_DELAY: deferred.delay_s,
        }
        self._wait = self._list.open(
            span_id_of(self.run, f"wait:{what}"),
            "wait for the rate limit",
            "wait",
            parent=self._agents.current,
            start_ns=now,
            agent=self._facts.agent,
            attributes={semconv.RETRY_ATTEMPT: deferred.attempt, semconv.TURN: deferred.turn},
        )

    def _chat(
        self, event: LogEvent, began: int, now: int, what: str, error: ErrorInfo | None = None
    ) -> Span:
        spec = self._spec()
        span = self._list.open(
            span_id_of(self.run, what + self._again),
            chat_name(model_of(spec)),
            "chat",
            kind="client",
            parent=self._hops.working or self._agents.current,
            start_ns=began,
            agent=self._facts.agent,
            attributes=request_attributes(spec, stream=self._options.stream),
        )
        cause = cause_of(event)
        span.queued_ns = self._hops.queued_before(cause)
        self._takeovers.mark_turn(span, cause)
        if error is not None:
            span.error, span.error_message = error_type(error), error.message
        self._list.close(span, now)
        return span

    def _end_wait(self, now: int) -> None:
        if self._wait is not None:
            self._list.close(self._wait, now)
            self._wait = None

    # --- calls ---------------------------------------------------------------------------------

    def _on_call(self, event: LogEvent, call: CallRequested, now: int) -> None:
        spec = self._specs.get(call.agent)
        shape = shape_of(call, spec)
        traits = call.traits
        is_model = traits.is_model
        span = self._list.open(
            call_span_id(self.run, call.call, self._again),
            chat_name(model_of(spec)) if is_model else shape.name,
            "chat" if is_model else shape.operation,
            kind="client" if is_model else "internal",
            parent=self._hops.process_of(event.sequence) or self._agents.current,
            start_ns=now,
            agent=call.agent,
            attributes=shape.attributes,
        )
        if is_model:
            span.attributes |= request_attributes(spec, stream=self._options.stream)
        if traits.is_tool:
            self._facts.tool_calls += 1
            self._facts.children += traits.is_child_run
            if self._state is not None:
                span.contents = tool_contents(call, None)
        before = self._calls.get(call.call)
        if before is not None and self._moves:
            is_same = self._takeovers.is_asked_again(before[1:], event.sequence, now)
            self._facts.tool_calls -= is_same and traits.is_tool
        self._calls[call.call] = (call, span, event.sequence)

    def _on_call_started(self, started: CallStarted, now: int) -> None:
        asked = self._calls.get(started.call)
        if asked is not None:
            asked[1].events.append(SpanEvent(name="call.started", time_ns=now))
            asked[1].attributes[semconv.WORKER] = started.host[:WORKER_LENGTH]

    def _on_result(self, finished: CallFinished, now: int) -> None:
        asked = self._calls.pop(finished.call, None)
        if asked is None:
            return  # requested before the log begins, or already answered
        call, span, sequence = asked
        if finished.error is not None:
            span.error, span.error_message = finished.error.code, finished.error.message
        if call.traits.is_handoff and (target := handoff_target(finished)):
            span.name = f"handoff {call.agent} to {target}"
            span.attributes[semconv.HANDOFF_TO] = target
            self._handed_by_call = True
        if call.traits.is_child_run:
            self._facts.usage = self._facts.usage.plus(finished.usage)
            self._facts.tool_calls += finished.tool_calls
            self._list.close(span, now)
        else:
            self._close_call(span, now, finished.duration_ms, sequence)
        if self._state is not None and call.traits.is_tool:
            span.contents = tool_contents(call, finished)
        for index, record in enumerate(finished.guardrails):
            guard = self._list.open(
                span_id_of(self.run, f"guard:{call.call}{self._again}:{index}"),
                f"guardrail {record.name}",
                "guardrail",
                parent=span.span_id,
                start_ns=span.start_ns,
                agent=record.agent or call.agent,
                attributes=guardrail_attributes(record),
            )
            self._list.close(guard, now)

    def _close_call(self, span: Span, now: int, duration_ms: int, sequence: int) -> None:
        """Set the start to when the work began, not to the request; before, the call was queued or
        with a process that was lost.
        """
        asked_ns = span.start_ns
        span.start_ns = began_ns(now, duration_ms, asked_ns)
        self._hops.mark(span, sequence)
        is_lost = semconv.LOST in span.attributes
        queued_ns = self._hops.queued_before(sequence) if is_lost else span.start_ns - asked_ns
        span.queued_ns = queued_ns
        self._list.close(span, now)

    # --- conversations -------------------------------------------------------------------------

    def _on_conversation(self, now: int) -> None:
        span = self._list.open(
            span_id_of(self.run, "conversation"),
            "memory.read",
            "memory",
            parent=self._agents.current,
            start_ns=self._facts.started_ns,
            agent=self._facts.agent,
            attributes={semconv.SESSION_ID: self._facts.session},
        )
        self._list.close(span, now)

    # --- helpers -------------------------------------------------------------------------------

    def _spec(self) -> AgentSpec | None:
        return self._specs.get(self._facts.agent)

    def _remark(self, name: str, now: int, attributes: Attributes | None = None) -> None:
        self._agents.remark(SpanEvent(name=name, time_ns=now, attributes=attributes or {}))


def _duration_ns(event: RunEvent) -> int:
    if isinstance(event, ModelAnswered | ModelDeferred | CallFinished):
        return max(event.duration_ms, 0) * MS
    if isinstance(event, RunDone) and event.error is not None:  # of the failed model call
        took_ms = event.error.data.get("duration_ms")
        return max(took_ms, 0) * MS if isinstance(took_ms, int) else 0
    return 0
