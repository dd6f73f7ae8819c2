"""A run's state as a fold over its events. No I/O, no clock: the same events give the same state.

The state answers three questions: what are the items of the conversation, which requests have no
result, and which event (``trigger``) makes the next model turn due? Only the actor that holds that
event takes the turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import assert_never

import msgspec
from msgspec import Raw
from sandstream_bus.logs.chain import BEFORE
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
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    Prepared,
    Reviewed,
    Rewrite,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    StopDecision,
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.wire.sandboxes import Opened, SandboxUse
from sandstream_bus.wire.specs import AgentSpec
from sandstream_bus.wire.subjects import RunId, sandbox_of

from sandstream_actors.run.answer_calls import AnswerCalls
from sandstream_actors.run.call_results import checked, early_of, history_of, with_session
from sandstream_actors.run.output_items import (
    ToolCall,
    assistant_message,
    call_output_item,
    handoff_outputs,
    read_answer,
    since_compaction,
    staged_items,
)
from sandstream_actors.run.places import Places, past_events
from sandstream_actors.run.retry import Past, reopen
from sandstream_actors.run.withheld import without_refused

PAUSED = "paused"
"""The name of a save before approval requests; earlier releases left outcomes out of it."""
_prepared = msgspec.json.Decoder(Prepared).decode
_stop = msgspec.json.Decoder(StopDecision).decode
_opened = msgspec.json.Decoder(Opened).decode
_reviewed = msgspec.json.Decoder(Reviewed).decode


class RunState(AnswerCalls):
    """The state of a run according to its log up to ``last_seq``."""

    def __init__(self, run: RunId) -> None:
        super().__init__()
        self.run = run
        self.last_seq = 0
        self.recent: list[int] = []
        """The sequences of the last events, oldest first."""
        self.size_bytes = 0
        """About how much of the log is folded into this state."""
        self.places = Places()
        self.traceparent: str | None = None
        self.turn = 0
        """How many answers the model has given."""
        self.handoffs = 0
        self.agent_is_new = True
        """The current agent has not had a turn since it became current."""
        self.trigger = 0
        """The sequence of the event that made the next turn due; 0 while nothing is due."""
        self.history: list[Raw] | None = None
        """The items of the conversation before this run; None until they are read."""
        self.has_conversation = False
        """The run holds its conversation on the bus."""
        self.input: list[Raw] = []
        """The run's own input; a handoff's filter may rewrite it."""
        self.items: list[Raw] = []
        """The items that the run has added to the conversation, as input items."""
        self.own_input: list[Raw] = []
        """The run's input as the caller, or the session's callback, provided it."""
        self._said_before: list[Raw] = []
        self._said_at_answer = 0
        self._rewritten = 0
        self.staged: list[tuple[int, list[Raw]]] = []
        """New input that no answer includes yet."""
        self.input_saved = False
        """The user's session has the run's input."""
        self.session_has = 0
        """How many items of ``said`` the session has."""
        self.saving: dict[str, int] = {}
        """How many it has after each requested save."""
        self._saves: Counter[int] = Counter()
        self.server_knows = 0
        """How many of ``items`` a server-managed conversation has seen."""
        self.usage = TokenUsage()
        self.response_id: str | None = None
        self.prepared: Prepared | None = None
        self._settled_first: list[ToolCall] = []
        """Calls of the last answer that had their outcomes when the run waited for people."""
        self._told_first = 0
        """How many of those have joined the conversation."""
        self.waits = 0
        self.tool_calls_made = 0
        """Tool calls, including those of child runs."""
        self.tree_turns = 0
        """Model answers, including those of child runs."""
        self.deferred: ModelDeferred | None = None
        """Set while the run waits for a timer."""
        self.waited_s = 0.0
        self.wait_attempts = 0
        self.agents_with_tool_use: set[str] = set()
        self.seen_calls: dict[str, str] = {}
        """The model's call ids so far, with fingerprints of the calls."""
        self.sandboxes: dict[str, Opened] = {}
        """The open sandboxes, by the agent that works in them."""
        self.closings = 0
        """How often its sandboxes were closed."""
        self.moves = self.reopens = 0
        self.past = Past()
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
            self.size_bytes += len(event.stored.data)
            self.apply(event.sequence, event.event, event.subject)

    def lacks(self, sequence: int) -> bool:
        """Is this event, which is not the newest of the run, certainly missing from this state?"""
        is_known = len(self.recent) < BEFORE or sequence >= self.recent[0]
        return is_known and sequence not in self.recent

    # --- queries -------------------------------------------------------------------------------

    @property
    def pool(self) -> str:
        """The harness pool that takes the current agent's turns."""
        return self.pool_of(self.agent_name)

    def pool_of(self, agent: str) -> str:
        spec = self.agents.get(agent)
        return (spec.pool if spec else "") or self.places.pool

    @property
    def host(self) -> str:
        """The pool that hosts the current agent's callables."""
        return self.places.host_of(self.agent.host)

    def sandbox_id(self, agent: AgentSpec) -> str:
        """The sandbox of an agent: the caller's, or one of the run's own."""
        assert agent.sandbox is not None
        return agent.sandbox.id or sandbox_of(self.run, agent.name)

    def to_close(self) -> list[tuple[str, SandboxUse, Opened]]:
        """Sandboxes that are the run's own and still open."""
        found = []
        for name, opened in self.sandboxes.items():
            use = self.agents[name].sandbox
            if use is not None and use.owned and not use.keep:
                found.append((name, use, opened))
        return found

    def conversation(self) -> list[Raw]:
        """The input of the next model call: all items, or those that the server has not seen."""
        staged = [item for _, items in self.staged for item in items]
        if self.turn > 0 and self.options.is_server_managed:
            return self.items[self.server_knows :] + staged
        return since_compaction(self.agent, (self.history or []) + self.input + self.items + staged)

    @property
    def said(self) -> list[Raw]:
        """All items that the run has added; a handoff's filter may hide some of them."""
        return self._said_before + self.items[self._rewritten :]

    def next_save(self, *, paused: bool = False) -> str | None:
        """The id of the next save call; None if the session is up to date. ``paused``: include the
        known outcomes of a turn that waits for people.
        """
        is_all = self.session_has == len(self.said) and not (paused and self._untold())
        if self.input_saved and is_all:
            return None
        again = self._saves[self.turn]
        return f"t{self.turn}-save{again or ''}"

    # --- the fold ------------------------------------------------------------------------------

    def apply(self, sequence: int, event: RunEvent, subject: str = "") -> None:
        """Fold the next event of the log. Events must come in order and without a gap."""
        self.last_seq = sequence
        self.recent.append(sequence)
        del self.recent[:-BEFORE]
        if self.places.is_elsewhere(subject, event):
            # addressed to, or sent by, the previous process; the new process requests it again
            return
        match event:
            case RunStarted():
                self._started(sequence, event)
            case RunRestored():
                self._restored(sequence, event)
            case TurnRequested(reason="session"):
                if not self.has_conversation:
                    self.trigger = sequence
            case TurnRequested():
                if event.turn == self.turn + 1:
                    self._next_turn(sequence, event)
            case ConversationOpened():
                self.has_conversation = True
                if self.history is None:
                    self.history = event.history
            case InputStaged():
                self.staged.append((sequence, staged_items(event)))
            case RunReopened():
                if reopen(self, event):
                    self._ask_again()
                    self.trigger = sequence
                    self._close_if_settled(False)
            case RunMoved():
                self.places.move(event)
                if event.stream is not None:
                    self.change_options(stream=event.stream)
                self.moves += 1
                self._ask_again()
                self.trigger = sequence
            case ModelAnswered():
                self._answered(sequence, event)
            case ModelDeferred():
                if event.turn == self.turn + 1:
                    self.deferred = event
                    self.waited_s, self.wait_attempts = event.waited_s, event.attempt
                    self.usage = self.usage.plus(TokenUsage(requests=1))
            case CallRequested():
                self.asked[event.call] = event
                if event.traits.writes_session:
                    if event.name == PAUSED:
                        self._settled_first += self._newly_settled()
                        self._tell(self._settled_first[self._told_first :])
                        self._told_first = len(self._settled_first)
                    self.saving[event.call] = len(self.said)
            case CallStarted():
                pass
            case CallFinished():
                self._finished(sequence, event)
            case ApprovalRequested():
                self.requested.setdefault(event.call, event)
            case ApprovalDecided():
                self._decided(sequence, event)
            case RunWaiting():
                self.waiting = event
                self.waits += 1
                self._settled_first += self._newly_settled()
            case ChildWaiting():
                if event.call in self.asked and event.call not in self.results:
                    self._child_asks(event)
            case CancelRequested():
                if self.cancel is None or event.mode == "immediate":
                    self.cancel = event
            case RunDone():
                self.done = event
                self.dones += 1
            case _:
                assert_never(event)

    def _started(self, sequence: int, event: RunStarted) -> None:
        if self.started is not None:
            return
        self.started = event
        self.agents = dict(event.graph.agents)
        self.places.begin(event)
        self.agent_name = event.graph.start
        self.input = self.own_input = event.input
        self.response_id = event.options.previous_response_id
        self.trigger = sequence

    def _restored(self, sequence: int, event: RunRestored) -> None:
        """Fold the events of another log, then continue at the sequence of this one."""
        for stored, (subject, past) in zip(event.events, past_events(event), strict=True):
            self.apply(stored.sequence or sequence, past, subject)
        self.arrive(sequence, event)

    def arrive(self, sequence: int, event: RunRestored) -> None:
        """All past events are folded: from here on this log counts."""
        self.last_seq = sequence
        self.recent = [sequence]
        self.staged = [(sequence, items) for _, items in self.staged]  # in this log's order
        self.places.move(RunMoved(pool=event.pool, host=event.host))
        self.has_conversation = False  # in this log it has to take its turn
        self._ask_again()
        self.trigger = sequence

    def _next_turn(self, sequence: int, event: TurnRequested) -> None:
        self.deferred = None
        self.trigger = sequence
        if event.reason != "handoff":
            return
        calls = self.handoff_calls
        self.items.extend(handoff_outputs(calls, self._name_of(event)))
        self.seen_calls |= {call.call_id: call.fingerprint for call in calls}
        self.agents |= event.agents
        self.agent_name = event.agent
        self.agent_is_new = True
        self.handoffs += 1
        if event.rewrite is not None:
            self._said_before = self._said_with(event.rewrite)
            self.history = []
            self.input = event.rewrite.input
            self.items = list(event.rewrite.model_items)
            self._rewritten = len(self.items)
            self.server_knows = 0
        self.forget_turn()
        self.answer = None

    def _said_with(self, rewrite: Rewrite) -> list[Raw]:
        """A filter may remove items of this turn, but not earlier ones."""
        if rewrite.earlier is None:
            return self.said
        new = [it.raw for it in rewrite.items[rewrite.earlier :] if it.kind != "tool_approval_item"]
        return self.said[: self._said_at_answer] + new

    def _name_of(self, event: TurnRequested) -> str:
        """The name of the next agent, which two agents may share."""
        spec = event.agents.get(event.agent) or self.agents.get(event.agent)
        return spec.name if spec else event.agent

    def forget_turn(self) -> None:
        """Forget the last answer's requests. Guardrails may still be checking the run's input."""
        self.asked = {call: it for call, it in self.asked.items() if it.traits.checks_input}
        self.results = {call: it for call, it in self.results.items() if it.traits.checks_input}
        self.reviewed = None
        self.requested = {}
        self.decided = {}
        self.child_waits = {}
        self.decided_below = {}
        self.waiting = None
        self._settled_first = []
        self._told_first = 0

    def _answered(self, sequence: int, event: ModelAnswered) -> None:
        if event.turn != self.turn + 1:
            return  # the same turn's second answer: the first one counts
        seen = event.upto or sequence
        self.past.answered(self, seen)
        self.turn = event.turn
        self.usage = self.usage.plus(event.usage)
        self.response_id = event.response_id or self.response_id
        self.answer = read_answer(event, self.seen_calls)
        if f"t{event.turn}-model" in self.asked:  # came from the tool host and wakes the harness
            self.trigger = sequence
        for _, items in [it for it in self.staged if it[0] <= seen]:
            self.items.extend(items)
        self.staged = [it for it in self.staged if it[0] > seen]
        self._said_at_answer = len(self.said)
        self.items.extend(self.answer.input_items(omit_reasoning_ids=self._omits_reasoning_ids))
        self.server_knows = len(self.items)
        prepared = self.prepared.disabled_tools if self.prepared else []
        self.disabled_tools = {*prepared, *event.disabled_tools}
        listed = self.prepared.tools if self.prepared else event.listed_tools
        self.listed_tools = {tool.name: tool for tool in listed}
        self.prepared = None
        self.agent_is_new = False
        self.tree_turns += 1
        self.deferred = None
        self.waited_s, self.wait_attempts = 0.0, 0
        self.forget_turn()
        if self.answer.uses_tools:
            self.agents_with_tool_use.add(self.agent_name)
        self._close_if_settled(False)  # an earlier answer of a person may hold for all calls

    @property
    def _omits_reasoning_ids(self) -> bool:
        return self.started is not None and self.options.reasoning_ids == "omit"

    def _finished(self, sequence: int, event: CallFinished) -> None:
        asked = self.asked.get(early_of(event.call) or event.call)
        if asked is None or event.call in self.results or self.past.is_outdated(event):
            return  # a repeated or foreign result: the first one counts
        event = checked(event, asked.kind)
        before = not self.open_tool_calls()
        self.results[event.call] = event
        self.past.note_late(self, event.call)
        self.waiting = None
        self._take_outcome(asked, event)
        if not event.traits.checks_input or self.turn > 0 or self._frees_first_turn(event, asked):
            self.trigger = sequence
        self._close_if_settled(before)

    def _take_outcome(self, asked: CallRequested, event: CallFinished) -> None:
        match event.kind:
            case "prepare" if event.output:
                self.prepared = _prepared(event.output)
            case "review" if event.output:
                self.reviewed = _reviewed(event.output)
            case "history" if event.output:
                self.history, self.input, self.own_input = history_of(event.output, self.input)
                self.started = with_session(self.started, event.output)
            case "save" if event.error is None:
                self.input_saved = True
                self.session_has = self.saving.pop(event.call)
                self._saves[asked.turn] += 1
            case "child":
                self.child_waits.pop(event.call, None)
                self.usage = self.usage.plus(event.usage)
                self.tool_calls_made += 1 + event.tool_calls
                self.tree_turns += event.turns
            case "tool":
                self.tool_calls_made += 1
            case "finish" if event.error and event.error.code == "output_guardrail":
                start = self._said_at_answer - len(self._said_before) + self._rewritten
                self.past.refuse(self)
                self.items = without_refused(self.items, start, asked, event.value)
            case "open" if event.output:
                self.sandboxes[asked.agent] = _opened(event.output)
            case "close":
                self.sandboxes.pop(asked.agent, None)
                self.closings += 1
            case "error" | "output" if event.output:
                decision = _stop(event.output)
                if decision.final and decision.include_in_history and decision.value:
                    self.items.append(assistant_message(decision.value))
            case "prepare" | "review" | "history" | "save" | "finish" | "open" | "error" | "output":
                pass  # it failed, or has no effect here
            case "model" | "stop" | "checkpoint" | "handoff" | "guard" | "reject" | "hook":
                pass
            case "child_input" | "child_output" | "watch":
                pass
            case _:
                assert_never(event.kind)

    def _decided(self, sequence: int, event: ApprovalDecided) -> None:
        if event.run and event.run != self.run:
            self.decided_below[sequence] = event
            for waiting in list(self.child_waits.values()):
                self._child_asks(waiting)
            return
        by_call_id = {call.call_id: call.id for call in self.tool_calls}
        call = event.call if event.call in self.requested else by_call_id.get(event.call, "")
        asked = self.requested.get(call)
        if asked is None or call in self.decided:
            return  # gone, or decided: the first answer counts
        before = not self.open_tool_calls()
        self.decided[call] = event
        self.waiting = None
        if event.always:
            self.sticky[(asked.agent, asked.name)] = event
        self.trigger = sequence
        self._close_if_settled(before)

    def _close_if_settled(self, were_settled: bool) -> None:
        """When the last call has an outcome, add all outputs to the conversation: first those that
        had outcomes when the run waited for people, then the others in the order of the calls.
        """
        calls = self.tool_calls
        if were_settled or self.done is not None or not calls or self.open_tool_calls():
            return
        self._tell(self._untold())

    def _newly_settled(self) -> list[ToolCall]:
        known = {call.id for call in self._settled_first}
        return [it for it in self.tool_calls if it.id not in known and self.settled(it) is not None]

    def _untold(self) -> list[ToolCall]:
        """Calls with outcomes that have not joined the conversation."""
        return [*self._settled_first[self._told_first :], *self._newly_settled()]

    def _tell(self, calls: list[ToolCall]) -> None:
        """The outcomes of these calls join the conversation."""
        for call in calls:
            self.seen_calls[call.call_id] = call.fingerprint
            result = self.settled(call)
            if result is not None and result.output:
                self.past.tell(self, call.id, call_output_item(call, result.output))
