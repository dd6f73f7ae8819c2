"""Fold one run's events into the spans that the SDK shows for a run. Pure: the caller decides what
to report and when.

The spans are: task, agent, turn; within a turn the model's answer, tool calls, handoffs. The
tracing actor draws other spans from the same log (``sandstream_actors.tracing``). Where both have a
span for the same thing, the ids are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

import msgspec
from sandstream_actors.run.headers import again
from sandstream_actors.run.places import past_events
from sandstream_actors.run.state import RunState
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    HandedOff,
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
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.wire.subjects import RunId
from sandstream_bus.wire.trace_context import call_span_id, run_span_id, span_id_of

from sandstream.tracing._runs.errors import ended_badly, out_of_turns, tool_error
from sandstream.tracing._runs.models import model_error_data, model_span_data
from sandstream.tracing._runs.usage import task_usage, turn_usage
from sandstream.tracing.span_data import (
    AgentSpanData,
    CustomSpanData,
    FunctionSpanData,
    GuardrailSpanData,
    HandoffSpanData,
    SpanData,
    TaskSpanData,
    TurnSpanData,
)
from sandstream.tracing.spans import SpanError

_handed_off = msgspec.json.Decoder(HandedOff).decode


@dataclass(frozen=True)
class SpanBegan:
    """``key`` names the span within the run; ``parent`` is the key above it, ``None`` the
    caller's.
    """

    key: str
    parent: str | None
    span_id: str
    data: SpanData
    at: str


@dataclass(frozen=True)
class SpanEnded:
    key: str
    at: str
    error: SpanError | None = None


Step = SpanBegan | SpanEnded


@dataclass(frozen=True)
class Settings:
    """Options for a run's spans, and what only its process knows."""

    contents: bool = True
    tasks_and_turns: bool = True
    value_of: Callable[[str], Any] = lambda call: None
    """What a tool returned, by call, if it ran in this process."""
    shows_itself: Callable[[str], bool] = lambda agent: False
    """Whether the model of an agent makes its own spans."""
    output_type: Callable[[str], str | None] = lambda agent: None
    """The name of an agent's output type, if the agent is in this process."""
    was_asked_here: Callable[[str], bool] = lambda call: False
    """Whether the guardrails of a call ran, and were shown, in this process."""


class RunSpans:
    """Grows with each event. ``quiet`` events are already known and make no spans."""

    def __init__(self, run: str, settings: Settings) -> None:
        self.run = run
        self._settings = settings
        self.state = RunState(RunId(run))
        self.is_traced = True
        self._contents = settings.contents
        self._steps: list[Step] = []
        self._open: dict[str, SpanData] = {}
        self._agent = ""
        """The key of the open agent span."""
        self._turn = ""
        self._times = 0
        """How often the run has waited or ended."""
        self._at = ""
        self._is_handed_by_call = False
        """Whether the user's code for the next handoff already has its span."""
        self._of_agent: SpanError | None = None
        """An error after which the run continued."""
        self._began_with = TokenUsage()
        self._turn_began_with = TokenUsage()

    # --- public interface ----------------------------------------------------------------------

    def feed(self, event: LogEvent, at: str, *, quiet: bool = False) -> list[Step]:
        """Process the next event, which happened at the time ``at``."""
        self._steps = []
        if self.state.traceparent is None:
            self.state.traceparent = event.stored.headers.get("traceparent")
        if isinstance(event.event, RunRestored):
            for stored, (subject, past) in zip(
                event.event.events, past_events(event.event), strict=True
            ):
                self._take(stored.sequence or event.sequence, past, subject, at, quiet=True)
            self.state.arrive(event.sequence, event.event)
        else:
            self._take(event.sequence, event.event, event.subject, at, quiet=quiet)
        return self._steps if self.is_traced else []

    def close(self, at: str) -> list[Step]:
        """Close all spans: the caller has stopped waiting for the run."""
        self._steps = []
        self._end_all(at)
        return self._steps

    def span_of(self, call: CallRequested) -> str | None:
        """The key of the span in which the user's code for a call runs."""
        if call.traits.is_tool or call.traits.is_handoff:
            return f"call:{call.call}"
        above = self._turn or self._agent
        return above if above in self._open else next(reversed(self._open), None)

    # --- the fold ------------------------------------------------------------------------------

    def _take(self, sequence: int, event: RunEvent, subject: str, at: str, *, quiet: bool) -> None:
        state = self.state
        if state.places.is_elsewhere(subject, event):
            state.apply(sequence, event, subject)
            return
        self._at = max(at, self._at)
        if quiet:
            state.apply(sequence, event, subject)
            self._times += isinstance(event, RunWaiting | RunDone)
            if isinstance(event, RunStarted):
                self._started(event)
            return
        before = self._before(event)
        state.apply(sequence, event, subject)
        self._after(sequence, event, before)

    def _before(self, event: RunEvent) -> Any:
        """Read what is needed from the state before the event changes it."""
        if self.state.started is not None and self.state.done is None:
            self._begin_task()
        if isinstance(event, CallFinished):
            return event.call not in self.state.results and event.call in self.state.asked
        if isinstance(event, RunDone):
            return model_error_data(self.state, event)
        next_turn = self.state.turn + 1
        if isinstance(event, ModelAnswered) and event.turn == next_turn:
            self._begin_turn(event.turn)
            self._show_tools(event)
            return model_span_data(self.state, event, contents=self._contents)
        if isinstance(event, TurnRequested) and (event.reason, event.turn) == (
            "handoff",
            next_turn,
        ):
            return self.state.agent.name, self._too_many_handoffs()
        return None

    def _after(self, sequence: int, event: RunEvent, before: Any) -> None:
        match event:
            case RunStarted():
                self._started(event)
                self._begin_task()
                self._begin_turn(1)
            case RunReopened():
                self._begin_task()
            case ModelAnswered() if before is not None:
                self._answered(event, before)
            case CallRequested():
                self._asked(event)
            case ApprovalRequested() if not event.run:
                self._waits_for_person(event)
            case CallFinished() if before:
                self._finished(event)
            case TurnRequested(reason="handoff") if before is not None:
                self._handed_over(sequence, before)
            case RunWaiting():
                self._end_all(self._at)
                self._times += 1
            case RunDone():
                self._done(event, before)
                self._times += 1
            case ModelAnswered() | CallFinished() | TurnRequested() | ApprovalRequested():
                pass
            case RunRestored() | RunMoved() | ConversationOpened() | InputStaged():
                pass
            case ModelDeferred() | CallStarted() | ApprovalDecided() | ChildWaiting():
                pass
            case CancelRequested():
                pass
            case _:
                assert_never(event)

    def _started(self, event: RunStarted) -> None:
        self.is_traced = event.options.traced
        self._contents = self._settings.contents and event.options.trace_contents

    def _answered(self, event: ModelAnswered, data: SpanData) -> None:
        if not self._settings.shows_itself(event.agent):
            began = _earlier(self._at, event.duration_ms)
            what = f"t{event.turn}:model{again(self.state)}"
            self._begin(what, self._below_turn, what, data, began)
            self._end(what)

    def _show_tools(self, event: ModelAnswered) -> None:
        """Record in the agent's span what the model could choose from."""
        agent = self._open.get(self._agent)
        if not isinstance(agent, AgentSpanData):
            return
        spec, prepared = self.state.agent, self.state.prepared
        listed = event.listed_tools or (prepared.tools if prepared else [])
        disabled = {*event.disabled_tools, *(prepared.disabled_tools if prepared else [])}
        own = names_of(spec.tools)
        every = [*(name for name in names_of(listed) if name not in own), *own]
        agent.tools = [name for name in every if name not in disabled]
        agent.handoffs = [
            self._name_of_target(it) for it in spec.handoffs if it.name not in disabled
        ]

    def _asked(self, call: CallRequested) -> None:
        key = f"call:{call.call}"
        span_id = call_span_id(self.run, call.call, again(self.state))
        match call.kind:
            case "tool" | "child":
                if key in self._open:
                    return  # asked again, of another process: it is still the same call
                input = call.arguments if self._contents else None
                data = FunctionSpanData(call.name, input, None)
                self._begin_id(key, self._below_turn, span_id, data)
            case "handoff":
                self._is_handed_by_call = True
                handoff = HandoffSpanData(self.state.agent.name, None)
                self._begin_id(key, self._below_turn, span_id, handoff)
            case "open" | "checkpoint" | "close":
                done = CustomSpanData(f"sandbox.{call.kind}", {"sandbox": call.sandbox})
                self._begin_id(key, self._below_turn, span_id, done)
            case "prepare" | "model":
                if call.turn == self.state.turn + 1:
                    self._begin_turn(call.turn)
            case "error":
                if call.error is not None and call.error.code == "max_turns":
                    self._of_agent = out_of_turns(self.state)
            case "finish":
                self._end_turn()
            case "guard" | "review" | "reject" | "hook" | "stop" | "output" | "history" | "save":
                pass
            case "child_input" | "child_output" | "watch":
                pass
            case _:
                assert_never(call.kind)

    def _waits_for_person(self, asked: ApprovalRequested) -> None:
        what = f"approval:{asked.call}{again(self.state)}"
        input = asked.arguments if self._contents else None
        self._begin(what, self._below_turn, what, FunctionSpanData(asked.name, input, None))
        self._end(what)

    def _finished(self, event: CallFinished) -> None:
        key = f"call:{event.call}"
        data = self._open.get(key)
        error: SpanError | None = None
        if isinstance(data, FunctionSpanData):
            error = tool_error(
                data.name, event.error, is_told=bool(event.output), contents=self._contents
            )
            if self._contents and not (error and not event.output):
                here = self._settings.value_of(event.call)
                data.output = here if here is not None else _decoded(event.output)
        elif isinstance(data, CustomSpanData) and event.error is not None:
            error = {"message": f"Error in {data.name}", "data": {"error": event.error.code}}
        elif isinstance(data, HandoffSpanData) and event.output:
            error = self._too_many_handoffs()
            spec = self.state.agents.get(_handed_off(event.output).agent)
            data.to_agent = spec.name if spec else _handed_off(event.output).agent
        traits = event.traits
        is_guarded = traits.checks_input or traits.checks_output
        if is_guarded and not self._settings.was_asked_here(event.call):
            above = self._below_turn if traits.checks_input else self._agent
            for index, record in enumerate(event.guardrails):
                what = f"guard:{event.call}{again(self.state)}:{index}"
                self._begin(what, above, what, GuardrailSpanData(record.name, record.tripped))
                self._end(what)
        if data is not None:
            self._end(key, error=error)

    def _handed_over(self, sequence: int, before: tuple[str, SpanError | None]) -> None:
        if not self._is_handed_by_call:
            what = f"handoff:{sequence}"
            data = HandoffSpanData(before[0], self.state.agent.name)
            self._begin(what, self._below_turn, what, data)
            self._end(what, error=before[1])
        self._is_handed_by_call = False
        self._end_turn()
        self._end_agent()
        self._begin_agent(span_id_of(self.run, f"agent:{sequence}"))
        self._begin_turn(self.state.turn + 1)

    def _too_many_handoffs(self) -> SpanError | None:
        """The error if an answer requests several handoffs; only the first one is done."""
        targets = {it.name: self._name_of_target(it) for it in self.state.agent.handoffs}
        asked = [targets.get(it.name, it.name) for it in self.state.handoff_calls]
        if len(asked) < 2:
            return None
        return {"message": "Multiple handoffs requested", "data": {"requested_agents": asked}}

    def _done(self, event: RunDone, failed: SpanData | None) -> None:
        bad = ended_badly(event, self.state, contents=self._contents)
        if failed is not None:
            self._begin_turn(self.state.turn + 1)
            what = f"t{self.state.turn + 1}:model{again(self.state)}"
            if not self._settings.shows_itself(self.state.agent_name):
                self._begin(what, self._below_turn, what, failed)
                self._end(what, error=bad.of_model)
        self._end_all(self._at, of_turn=bad.of_turn, of_agent=bad.of_agent or self._of_agent)

    # --- opening and closing -------------------------------------------------------------------

    def _begin_task(self) -> None:
        if self._agent:
            return
        again = f":{self._times}" if self._times else ""
        if self._settings.tasks_and_turns:
            data = TaskSpanData(self.state.options.workflow_name)
            self._begin(f"task{again}", None, f"task{again}", data)
        self._began_with = self.state.usage
        first = run_span_id(self.run, self.state.reopens)
        self._begin_agent(span_id_of(self.run, f"agent{again}") if self._times else first)

    def _begin_agent(self, span_id: str) -> None:
        spec = self.state.agent
        self._agent = f"agent:{span_id}"
        data = AgentSpanData(
            spec.name,
            handoffs=[self._name_of_target(it) for it in spec.handoffs],
            tools=names_of(spec.tools),
            output_type=self._settings.output_type(self.state.agent_name)
            or (spec.output.name if spec.output else "str"),
        )
        task = next((key for key in self._open if key.startswith("task")), None)
        self._begin_id(self._agent, task, span_id, data)

    def _name_of_target(self, handoff: Any) -> str:
        target = self.state.agents.get(handoff.agent)
        return target.name if target is not None else handoff.name

    def _begin_turn(self, turn: int) -> None:
        key = f"turn:{turn}"
        if self._turn == key:
            return
        self._end_turn()
        self._turn = key
        self._turn_began_with = self.state.usage
        if self._settings.tasks_and_turns:
            self._begin(key, self._agent, key, TurnSpanData(turn, self.state.agent.name))

    def _end_turn(self, error: SpanError | None = None) -> None:
        data = self._open.get(self._turn)
        if isinstance(data, TurnSpanData):
            data.usage = turn_usage(self.state.usage, self._turn_began_with)
            self._end(self._turn, error=error)
        self._turn = ""

    def _end_agent(self, error: SpanError | None = None) -> None:
        if self._agent in self._open:
            self._end(self._agent, error=error)
        self._agent = ""

    def _end_all(
        self,
        at: str,
        *,
        of_turn: SpanError | None = None,
        of_agent: SpanError | None = None,
    ) -> None:
        self._at = max(at, self._at)
        outer = (self._turn, self._agent)
        for key in [it for it in self._open if it not in outer and not it.startswith("task")]:
            self._end(key)
        self._end_turn(of_turn)
        self._end_agent(of_agent)
        for key, data in list(self._open.items()):
            if isinstance(data, TaskSpanData):
                data.usage = task_usage(self.state.usage, self._began_with)
            self._end(key)

    @property
    def _below_turn(self) -> str:
        return self._turn if self._turn in self._open else self._agent

    def _begin(self, key: str, parent: str | None, what: str, data: SpanData, at: str = "") -> None:
        self._begin_id(key, parent, span_id_of(self.run, what), data, at)

    def _begin_id(
        self, key: str, parent: str | None, span_id: str, data: SpanData, at: str = ""
    ) -> None:
        self._open[key] = data
        self._steps.append(SpanBegan(key, parent, span_id, data, at or self._at))

    def _end(self, key: str, *, error: SpanError | None = None) -> None:
        del self._open[key]
        self._steps.append(SpanEnded(key, self._at, error))


def names_of(tools: Any) -> list[str]:
    return [it.name for it in tools]


def _decoded(output: Any) -> Any:
    return msgspec.json.decode(output) if output else None


def _earlier(at: str, milliseconds: int) -> str:
    from datetime import datetime, timedelta

    return (datetime.fromisoformat(at) - timedelta(milliseconds=milliseconds)).isoformat()
