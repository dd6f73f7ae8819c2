"""A run's state as a fold over its events. No I/O, no clock: the same events give the same state.

The state answers three questions: what does the conversation look like, what is asked for and not
answered yet, and which event (``trigger``) makes the next model turn due. Only the actor that holds
that event takes the turn.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import (
    CallFinished,
    CallKind,
    CallRequested,
    CallStarted,
    CancelRequested,
    ErrorInfo,
    ModelAnswered,
    ModelDeferred,
    Prepared,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    RunStarted,
    StopDecision,
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.sandbox_messages import Opened, SandboxUse
from sandstream_bus.specs import NO_JSON, AgentSpec, RunOptions
from sandstream_bus.subjects import RunId, sandbox_of

from sandstream_actors.output_items import (
    AnswerView,
    ToolCall,
    assistant_message,
    call_output_item,
    read_answer,
)

_prepared = msgspec.json.Decoder(Prepared).decode
_stop = msgspec.json.Decoder(StopDecision).decode
_opened = msgspec.json.Decoder(Opened).decode


class RunState:
    """Everything that can be known of a run from its log up to ``last_seq``."""

    def __init__(self, run: RunId) -> None:
        self.run = run
        self.last_seq = 0
        self.started: RunStarted | None = None
        self.traceparent: str | None = None
        self.agent_name = ""
        self.turn = 0
        """How many answers the model has given."""
        self.trigger = 0
        """The sequence of the event that made the next turn due; 0 while nothing is due."""
        self.items: list[Raw] = []
        """What the run has added to the conversation, as input items."""
        self.server_knows = 0
        """How many of ``items`` a server-managed conversation has seen."""
        self.usage = TokenUsage()
        self.response_id: str | None = None
        self.answer: AnswerView | None = None
        """The last answer. What it asks for is in ``asked`` and ``results``."""
        self.asked: dict[str, CallRequested] = {}
        self.results: dict[str, CallFinished] = {}
        self.prepared: Prepared | None = None
        self.disabled_tools: set[str] = set()
        """Tools that the last answer could not use."""
        self.deferred: ModelDeferred | None = None
        """Set while the run waits for a timer."""
        self.waited_s = 0.0
        self.wait_attempts = 0
        self.agents_with_tool_use: set[str] = set()
        self.seen_calls: dict[str, str] = {}
        """The model's call ids so far, with what was called."""
        self.sandboxes: dict[str, Opened] = {}
        """The open sandboxes, by the agent that works in them."""
        self.moved: RunMoved | None = None
        self.moves = 0
        self.reopens = 0
        self.cancel: CancelRequested | None = None
        self.done: RunDone | None = None
        self.dones = 0

    @classmethod
    def of(cls, run: RunId, events: Iterable[LogEvent]) -> RunState:
        state = cls(run)
        state.fold(events)
        return state

    def fold(self, events: Iterable[LogEvent]) -> None:
        for event in events:
            if self.traceparent is None:
                self.traceparent = event.stored.headers.get("traceparent")
            self.apply(event.sequence, event.event, event.subject)

    # --- what callers ask for ------------------------------------------------------------------

    @property
    def options(self) -> RunOptions:
        assert self.started is not None
        return self.started.options

    @property
    def agent(self) -> AgentSpec:
        assert self.started is not None
        return self.started.graph.agents[self.agent_name]

    @property
    def pool(self) -> str:
        assert self.started is not None
        return self.moved.pool if self.moved else self.started.pool

    @property
    def host(self) -> str:
        """The pool that hosts the current agent's callables."""
        return self.moved.host if self.moved else self.agent.host

    def sandbox_id(self, agent: AgentSpec) -> str:
        """The sandbox of an agent: the caller's, or one of the run's own."""
        assert agent.sandbox is not None
        return agent.sandbox.id or sandbox_of(self.run, agent.name)

    def to_close(self) -> list[tuple[str, SandboxUse, Opened]]:
        """Sandboxes that are the run's own and still open."""
        agents = self.started.graph.agents if self.started else {}
        found = []
        for name, opened in self.sandboxes.items():
            use = agents[name].sandbox
            if use is not None and use.owned and not use.keep:
                found.append((name, use, opened))
        return found

    @property
    def is_server_managed(self) -> bool:
        options = self.options
        return bool(
            options.previous_response_id
            or options.conversation_id
            or options.auto_previous_response_id
        )

    def conversation(self) -> list[Raw]:
        """The input of the next model call: everything, or what the server has not seen."""
        assert self.started is not None
        if self.is_server_managed and self.turn > 0:
            return self.items[self.server_knows :]
        return self.started.input + self.items

    # --- the fold ------------------------------------------------------------------------------

    def apply(self, sequence: int, event: RunEvent, subject: str = "") -> None:
        """Take in the next event of the log. Events must come in order and without a gap."""
        self.last_seq = sequence
        if self.moved is not None and is_for_another(subject, event, self.moved):
            return  # of or for a process that the run was taken from: it is asked anew
        match event:
            case RunStarted():
                self._started(sequence, event)
            case TurnRequested():
                if event.turn == self.turn + 1:
                    self.agent_name = event.agent
                    self.deferred = None
                    self.trigger = sequence
            case RunReopened():
                self.done = None
                self.reopens += 1
                self._ask_again()
                self.trigger = sequence
            case RunMoved():
                self.moved = event
                self.moves += 1
                self._ask_again()
                self.trigger = sequence
            case ModelAnswered():
                self._answered(sequence, event)
            case ModelDeferred():
                if event.turn == self.turn + 1:
                    self.deferred = event
                    self.waited_s = event.waited_s
                    self.wait_attempts = event.attempt
                    self.usage = self.usage.plus(TokenUsage(requests=1))
            case CallRequested():
                self.asked[event.call] = event
            case CallStarted():
                pass
            case CallFinished():
                self._finished(sequence, event)
            case CancelRequested():
                if self.cancel is None or event.mode == "immediate":
                    self.cancel = event
            case RunDone():
                self.done = event
                self.dones += 1

    def _started(self, sequence: int, event: RunStarted) -> None:
        if self.started is not None:
            return
        self.started = event
        self.agent_name = event.graph.start
        self.response_id = event.options.previous_response_id
        self.trigger = sequence

    def _answered(self, sequence: int, event: ModelAnswered) -> None:
        if event.turn != self.turn + 1:
            return  # the same turn's second answer: the first one counts
        self.turn = event.turn
        self.usage = self.usage.plus(event.usage)
        self.response_id = event.response_id or self.response_id
        self.answer = read_answer(event, self.seen_calls)
        if f"t{event.turn}-model" in self.asked:  # came from the tool host and wakes the harness
            self.trigger = sequence
        self.items.extend(self.answer.input_items(omit_reasoning_ids=self._omits_reasoning_ids))
        self.server_knows = len(self.items)
        prepared = self.prepared.disabled_tools if self.prepared else []
        self.disabled_tools = {*prepared, *event.disabled_tools}
        self.prepared = None
        self.deferred = None
        self.waited_s = 0.0
        self.wait_attempts = 0
        self.asked = {}
        self.results = {}
        if self.answer.uses_tools:
            self.agents_with_tool_use.add(self.agent_name)

    @property
    def _omits_reasoning_ids(self) -> bool:
        return self.started is not None and self.options.reasoning_ids == "omit"

    def _finished(self, sequence: int, event: CallFinished) -> None:
        asked = self.asked.get(event.call)
        if asked is None or event.call in self.results:
            return  # a repeated or foreign result: the first one counts
        event = _checked(event, asked.kind)
        self.results[event.call] = event
        if event.kind == "prepare" and event.output:
            self.prepared = _prepared(event.output)
        elif event.kind == "open" and event.output:
            self.sandboxes[asked.agent] = _opened(event.output)
        elif event.kind == "close":
            self.sandboxes.pop(asked.agent, None)
        elif event.kind in ("error", "output") and event.output:
            decision = _stop(event.output)
            if decision.final and decision.include_in_history and decision.value:
                self.items.append(assistant_message(decision.value))
        self.trigger = sequence
        calls = self.answer.tool_calls if self.answer else []
        if any(call.id == event.call for call in calls) and not self.open_tool_calls():
            self._close_tool_calls()

    def _ask_again(self) -> None:
        """Whoever was asked and has not answered may be gone, or have given up: ask anew."""
        self.asked = {call: it for call, it in self.asked.items() if call in self.results}

    def open_tool_calls(self) -> list[ToolCall]:
        """Tool calls of the last answer that have no result yet."""
        if self.answer is None:
            return []
        return [call for call in self.answer.tool_calls if call.id not in self.results]

    def _close_tool_calls(self) -> None:
        """All results are there: they join the conversation in the order of the calls."""
        assert self.answer is not None
        for call in self.answer.tool_calls:
            self.seen_calls[call.call_id] = call.fingerprint
            output = self.results[call.id].output
            if output:
                self.items.append(call_output_item(call, output))


def is_for_another(subject: str, event: RunEvent, moved: RunMoved) -> bool:
    """Does it address the process that the run was taken from? Nobody there will act on it."""
    if ".result." in subject:
        return not subject.endswith(f".result.{moved.pool}")
    if isinstance(event, CallRequested):  # decided before the move, sent after it
        if event.sandbox:  # its actor serves all; only the answer would go to the old pool
            return event.reply_pool != moved.pool
        return bool(subject) and not subject.endswith(f".call.{moved.host}")
    if isinstance(event, TurnRequested):  # a timer that was armed before the move
        return bool(subject) and not subject.endswith(f".turn.{moved.pool}")
    return False


def _checked(event: CallFinished, kind: CallKind) -> CallFinished:
    """The result as what was asked for. One of the wrong shape is a failure of its host, which may
    be written in any language.
    """
    if event.kind != kind:
        event = msgspec.structs.replace(event, kind=kind)
    if kind == "model":  # an answer is an event of its own: this can only be a failure
        info = ErrorInfo(code="bad_result", message=f"{event.call} ended without an answer")
        return msgspec.structs.replace(event, output=NO_JSON, error=event.error or info)
    try:
        if event.output and kind == "prepare":
            _prepared(event.output)
        elif event.output and kind in ("stop", "output", "error"):
            _stop(event.output)
        elif event.output and kind == "open":
            _opened(event.output)
    except msgspec.DecodeError as error:
        message = f"the tool host's result of {event.call} has the wrong shape: {error}"
        info = ErrorInfo(code="bad_result", message=message)
        return msgspec.structs.replace(event, output=NO_JSON, error=info)
    return event
