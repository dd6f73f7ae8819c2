"""A run as its caller sees it: items, responses, usage and stream events, computed from the log.

The harness's fold of the run decides which events count; this module shows its state with the
objects of this process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import msgspec
from msgspec import Raw
from sandstream_actors.run.output_items import assistant_message, handoff_outputs
from sandstream_actors.run.places import past_events
from sandstream_actors.run.state import RunState
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    CallFinished,
    ConversationOpened,
    ModelAnswered,
    ModelDeferred,
    Rewrite,
    RunDone,
    RunEvent,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    StopDecision,
    TurnRequested,
)
from sandstream_bus.wire.subjects import RunId, run_in

from sandstream._hosting.guardrails.records import GuardrailResults, results_of
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.items import ItemMaker
from sandstream._surface.item_records import items_of_input, items_of_records
from sandstream.agent import Agent
from sandstream.guardrail import InputGuardrailResult, OutputGuardrailResult
from sandstream.items import (
    HandoffOutputItem,
    InputItem,
    ItemHelpers,
    MessageOutputItem,
    ModelResponse,
    RunItem,
    ToolApprovalItem,
    ToolCallOutputItem,
    TResponseInputItem,
)
from sandstream.stream_events import AgentUpdatedStreamEvent, StreamEvent, event_of
from sandstream.tool_guardrails import ToolInputGuardrailResult
from sandstream.usage import Usage, usage_of

_stop = msgspec.json.Decoder(StopDecision).decode


def _with_entry(usage: Usage) -> Usage:
    """The answer's tokens belong to one request, even after failed attempts."""
    if usage.requests <= 1:
        return usage
    answered = dataclasses.replace(usage, requests=1)
    return dataclasses.replace(usage, request_usage_entries=answered.entries())


class RunView:
    """The view of one run; each event that it is fed extends it."""

    def __init__(self, hosted: HostedRun) -> None:
        self._hosted = hosted
        self.state = RunState(RunId(""))
        self._make = ItemMaker(hosted, self.state)
        self._outputs: dict[str, ToolCallOutputItem | None] = {}
        self._approvals: dict[str, ToolApprovalItem] = {}
        self._answer_at = (0, 0)
        """The indexes of the last answer's first items in ``items`` and ``model_items``."""
        self.items: list[RunItem] = []
        """The items that the run produced, for its result."""
        self.model_items: list[RunItem] = []
        """The items that the model sees; a handoff may have removed some."""
        self.items_in_input: list[RunItem] = []
        """Items that a handoff put unchanged into the run's input."""
        self.new_input: str | list[TResponseInputItem] | None = None
        """The run's input if it differs from the caller's: with a session's history, or as a
        handoff rewrote it.
        """
        self.responses: list[ModelResponse] = []
        self.usage = Usage()
        self.guardrails = GuardrailResults()

    # --- what callers ask for ------------------------------------------------------------------

    @property
    def input(self) -> list[TResponseInputItem]:
        return [msgspec.json.decode(item) for item in self._raw_input]

    @property
    def given_input(self) -> str | list[TResponseInputItem]:
        """The run's input in its original form: a text, or items."""
        if self.new_input is not None:
            return self.new_input
        items = self.input
        is_text = self.state.started is not None and self.state.started.is_text
        return str(items[0]["content"]) if is_text else items

    @property
    def turn(self) -> int:
        return self.state.turn

    @property
    def key(self) -> str:
        return self.state.agent_name

    @property
    def agent(self) -> Agent[Any] | None:
        return self._make.agent(self.key) if self.key else None

    @property
    def done(self) -> RunDone | None:
        return self.state.done

    @property
    def interruptions(self) -> list[ToolApprovalItem]:
        """Calls that wait for a person, including those of child runs."""
        if self.done is not None:
            return []
        own = self._approvals
        return [
            self._make.nested_approval(it) if it.run and it.run != self.state.run else own[it.call]
            for it in self.state.open_approvals()
            if it.call in own or it.run
        ]

    @property
    def last_text(self) -> str:
        """The text of the last message."""
        messages = [item for item in self.items if isinstance(item, MessageOutputItem)]
        return ItemHelpers.text_message_output(messages[-1]) if messages else ""

    def final_tool_output(self, behavior: Any) -> ToolCallOutputItem | None:
        """The item whose output ended the run, if its tool ran in this process."""
        names = behavior["stop_at_tool_names"] if isinstance(behavior, Mapping) else None
        for call in self.state.tool_calls:
            if not call.is_custom and (names is None or call.name in names):
                return self._outputs.get(call.id) if call.id in self._hosted.values else None
        return None

    @property
    def items_before_answer(self) -> tuple[list[RunItem], list[RunItem]]:
        """The items before the last answer: for the result, and for the model."""
        return self.items[: self._answer_at[0]], self.model_items[: self._answer_at[1]]

    @property
    def items_since_answer(self) -> list[RunItem]:
        return self.items[self._answer_at[0] :]

    def handoff_items(self, target: Agent[Any]) -> list[RunItem]:
        """The outputs of the last answer's handoffs, if its first handoff leads to ``target``."""
        agent = self._make.agent(self.key)
        outputs = handoff_outputs(self.state.handoff_calls, target.name)
        *ignored, taken = [msgspec.json.decode(output) for output in outputs]
        return [
            *(ToolCallOutputItem(agent, raw, raw["output"]) for raw in ignored),
            HandoffOutputItem(agent, taken, agent, target),
        ]

    # --- the fold ------------------------------------------------------------------------------

    def read(self, events: Iterable[LogEvent]) -> None:
        for event in events:
            self.feed(event.event, event.subject, event.sequence)

    def feed(self, event: RunEvent, subject: str = "", sequence: int = 0) -> list[StreamEvent]:
        """Apply the next event of the log; return the resulting stream events."""
        state = self.state
        sequence = sequence or state.last_seq + 1
        if subject and not state.run:
            state.run = run_in(subject)
        if isinstance(event, RunRestored):
            return self._restored(event, sequence)
        if state.places.is_elsewhere(subject, event):
            return []  # the harness does not count it either
        if isinstance(event, CallFinished):
            return self._finished(event, subject, sequence)
        next_turn = state.turn + 1
        if isinstance(event, ModelAnswered) and event.turn == next_turn:
            return self._answered(event, subject, sequence)
        if isinstance(event, TurnRequested) and (event.reason, event.turn) == (
            "handoff",
            next_turn,
        ):
            return self._handed_over(event, subject, sequence)
        if isinstance(event, ModelDeferred) and event.turn == next_turn:
            self.usage.requests += 1
        is_new = state.started is None
        state.apply(sequence, event, subject)
        if isinstance(event, RunStarted) and is_new:
            return [AgentUpdatedStreamEvent(self._make.agent(self.key))]
        if isinstance(event, ConversationOpened):
            self.new_input = self.input
        elif isinstance(event, ApprovalDecided | RunWaiting):
            return self._outcomes(paused=isinstance(event, RunWaiting))
        elif isinstance(event, RunReopened):
            return self._reopened(event)
        return []

    def _reopened(self, event: RunReopened) -> list[StreamEvent]:
        """Remove items that no longer count; show results that arrived after the end."""
        if event.drops_answer:
            del self.items[self._answer_at[0] :]
            del self.model_items[self._answer_at[1] :]
        for call in event.forgets:
            self._outputs.pop(call, None)
        return self._outcomes()

    @property
    def _raw_input(self) -> list[Raw]:
        return [*(self.state.history or []), *self.state.input]

    def _restored(self, event: RunRestored, sequence: int) -> list[StreamEvent]:
        for stored, (subject, past) in zip(event.events, past_events(event), strict=True):
            self.feed(past, subject, stored.sequence or sequence)
        self.state.arrive(sequence, event)
        return [AgentUpdatedStreamEvent(self._make.agent(self.key))] if self.key else []

    def _answered(self, event: ModelAnswered, subject: str, sequence: int) -> list[StreamEvent]:
        agent = self._make.agent(self.key)
        staged = list(self.state.staged)
        self.state.apply(sequence, event, subject)
        later = {since for since, _ in self.state.staged}
        for since, items in staged:
            if since not in later:
                self._add([InputItem(agent, msgspec.json.decode(item)) for item in items])
        usage = usage_of(event.usage)
        self.usage.add(_with_entry(usage))
        output = [msgspec.json.decode(item) for item in event.output]
        raw_usage = msgspec.json.decode(event.raw_usage) if event.raw_usage else None
        self.responses.append(
            ModelResponse(output, usage, event.response_id, event.request_id, raw_usage)
        )
        self._answer_at = (len(self.items), len(self.model_items))
        self._outputs = {}
        self._approvals = {}
        events = self._add([self._make.of_answer(raw) for raw in output])
        return events + self._outcomes()

    def _finished(self, event: CallFinished, subject: str, sequence: int) -> list[StreamEvent]:
        was_known = event.call in self.state.results
        self.state.apply(sequence, event, subject)
        result = self.state.results.get(event.call)
        if result is None or was_known:
            return []
        self._take_guardrails(result)
        match result.kind:
            case "child":
                self.usage.add(usage_of(result.usage))
            case "history":
                self.new_input = self.input
            case "finish":
                if result.error is not None and result.value:
                    self._withhold(msgspec.json.decode(result.value, type=str))
            case "error" | "output":
                if result.output:
                    return self._handled(_stop(result.output))
            case "tool" | "prepare" | "model" | "review" | "stop" | "handoff" | "reject" | "hook":
                pass
            case "guard" | "save" | "open" | "checkpoint" | "close":
                pass
            case "child_input" | "child_output" | "watch":
                pass
            case _:
                assert_never(result.kind)
        return self._outcomes()

    def _outcomes(self, *, paused: bool = False) -> list[StreamEvent]:
        """Add the outcomes of the last answer's calls, once all are known or people must decide."""
        if self.state.done is not None or (self.state.open_tool_calls() and not paused):
            return []
        new: list[RunItem] = []
        for call in self.state.tool_calls:
            if call.id in self._outputs:
                continue
            result = self.state.settled(call)
            if result is not None:
                item = self._make.of_outcome(call, result) if result.output else None
                self._outputs[call.id] = item
                new.extend([item] if item else [])
            elif call.id in self.state.requested and call.id not in self._approvals:
                self._approvals[call.id] = self._make.approval(call)
                new.append(self._approvals[call.id])
        return self._add(new)

    def _handled(self, decision: StopDecision) -> list[StreamEvent]:
        if not (decision.final and decision.include_in_history and decision.value):
            return []
        raw = msgspec.json.decode(assistant_message(Raw(decision.value)))
        return self._add([MessageOutputItem(self._make.agent(self.key), raw)])

    def _withhold(self, text: str) -> None:
        """Replace the last turn's tool outputs, which a guardrail refused."""
        for items, start in zip((self.items, self.model_items), self._answer_at, strict=True):
            for index, item in enumerate(items[start:], start):
                if isinstance(item, ToolCallOutputItem):
                    raw = {**item.to_input_item(), "output": text}
                    items[index] = ToolCallOutputItem(
                        item.agent, raw, text, tool_origin=item.tool_origin
                    )

    def _take_guardrails(self, result: CallFinished) -> None:
        """Add guardrail results: the original objects, if the guardrails ran in this process."""
        if not result.guardrails:
            return
        here = self._hosted.guardrails.get(result.call)
        if here is not None:
            for each in here:
                self._guardrail_list(each).append(each)
            return
        asked = self.state.asked[result.call]
        found = results_of(
            result.guardrails,
            self._hosted.agents,
            config=self._hosted.config,
            agent_output=msgspec.json.decode(asked.value) if asked.value else None,
        )
        for name, results in vars(found).items():
            getattr(self.guardrails, name).extend(results)

    def _guardrail_list(self, result: Any) -> list[Any]:
        match result:
            case InputGuardrailResult():
                return self.guardrails.input_guardrail_results
            case OutputGuardrailResult():
                return self.guardrails.output_guardrail_results
            case ToolInputGuardrailResult():
                return self.guardrails.tool_input_guardrail_results
            case _:
                return self.guardrails.tool_output_guardrail_results

    # --- handoffs ------------------------------------------------------------------------------

    def _handed_over(self, event: TurnRequested, subject: str, sequence: int) -> list[StreamEvent]:
        spec = event.agents.get(event.agent) or self.state.agents.get(event.agent)
        target = self._make.agent(event.agent, spec)
        new = self.handoff_items(target)
        self.state.apply(sequence, event, subject)
        if event.rewrite is None:
            events = self._add(new)
        else:
            events = self._rewritten(event.rewrite, new)
        return [*events, AgentUpdatedStreamEvent(target)]

    def _rewritten(self, rewrite: Rewrite, new: list[RunItem]) -> list[StreamEvent]:
        """Replace the items with those that a filter kept; return events for the new ones."""
        seen = {id(item) for item in self.items}
        known = [*self.items, *new, *self.model_items]
        self.items = items_of_records(rewrite.items, known, self._make.agent)
        agent = self._make.agent(self.key)
        self.model_items = items_of_input(rewrite.model_items, [*self.items, *known], agent)
        self.items_in_input = [
            item for item, record in zip(self.items, rewrite.items, strict=True) if record.in_input
        ]
        items = self.input
        self.new_input = str(items[0]["content"]) if rewrite.is_text else items
        return [event for item in self.items if id(item) not in seen for event in event_of(item)]

    def _add(self, items: Iterable[RunItem]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for item in items:
            self.items.append(item)
            self.model_items.append(item)
            events.extend(event_of(item))
        return events
