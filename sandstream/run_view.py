"""A run as its caller sees it: items, responses, usage, stream events, read off the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.output_items import ToolCall, assistant_message, read_answer
from sandstream_actors.run_places import Places, past_events
from sandstream_bus.messages import (
    CallFinished,
    CallRequested,
    ModelAnswered,
    RunDone,
    RunEvent,
    RunMoved,
    RunRestored,
    RunStarted,
    StopDecision,
    TokenUsage,
)

from sandstream.agent import Agent
from sandstream.hosting.hosted_run import HostedRun
from sandstream.items import (
    HandoffCallItem,
    HandoffOutputItem,
    ItemHelpers,
    MessageOutputItem,
    ModelResponse,
    ReasoningItem,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
)
from sandstream.stream_events import AgentUpdatedStreamEvent, RunItemStreamEvent, StreamEvent
from sandstream.tool_output import ToolOutputImage
from sandstream.usage import InputTokensDetails, OutputTokensDetails, Usage

_stop = msgspec.json.Decoder(StopDecision).decode


def usage_of(tokens: TokenUsage) -> Usage:
    """Token counts of the wire as the public type."""
    return Usage(
        requests=tokens.requests,
        input_tokens=tokens.input_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=tokens.cached_tokens, cache_write_tokens=tokens.cache_write_tokens
        ),
        output_tokens=tokens.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=tokens.reasoning_tokens),
        total_tokens=tokens.total_tokens,
    )


def _with_entry(usage: Usage) -> Usage:
    """The answer's tokens belong to one request, even if failed attempts came before it."""
    if usage.requests <= 1:
        return usage
    answered = dataclasses.replace(usage, requests=1)
    return dataclasses.replace(usage, request_usage_entries=answered.entries())


def _value_of(wire: Any) -> Any:
    """What a tool of another process gave, from its form on the wire: an image is an object."""
    if isinstance(wire, list) and len(wire) == 1 and wire[0].get("type") == "input_image":
        fields = {name: wire[0].get(name) for name in ("image_url", "file_id", "detail")}
        return ToolOutputImage(**fields)
    return wire


class RunView:
    """Grows with each event it is fed. ``values`` are return values of tools that ran in this
    process; ``working`` are agents as the model sees them, where these have more tools.
    """

    def __init__(self, hosted: HostedRun) -> None:
        self._hosted = hosted
        self._agents = hosted.agents
        self._values = hosted.values
        self._calls: list[ToolCall] = []
        self._results: dict[str, CallFinished] = {}
        self._outputs: dict[str, ToolCallOutputItem] = {}
        self._seen_calls: dict[str, str] = {}
        self._asked: dict[str, CallRequested] = {}
        self.input: list[Any] = []
        self.items: list[RunItem] = []
        self.responses: list[ModelResponse] = []
        self.usage = Usage()
        self.turn = 0
        self.key = ""
        self.agent: Agent[Any] | None = None
        self.done: RunDone | None = None
        self._places = Places()

    def feed(self, event: RunEvent, subject: str = "") -> list[StreamEvent]:
        """Take in the next event of the log; the stream events that follow from it."""
        if self._places.is_elsewhere(subject, event):
            return []  # the harness does not count it either
        match event:
            case RunMoved():
                self._places.move(event)
                return []
            case RunRestored():
                for past_subject, past in past_events(event):
                    self.feed(past, past_subject)
                self._places.move(RunMoved(pool=event.pool, host=event.host))
                return []
            case RunStarted():
                self._places.begin(event)
                self.input = [msgspec.json.decode(item) for item in event.input]
                return self._became(event.graph.start)
            case ModelAnswered() if event.turn == self.turn + 1:
                return self._answered(event)
            case CallRequested():
                self._asked[event.call] = event
                return []
            case CallFinished():
                return self._finished(event)
            case RunDone():
                self.done = event
                return []
            case _:
                return []

    def _became(self, name: str) -> list[StreamEvent]:
        self.key = name
        self.agent = self._agents[name]
        return [AgentUpdatedStreamEvent(self.agent)]

    def _answered(self, event: ModelAnswered) -> list[StreamEvent]:
        assert self.agent is not None
        self.turn = event.turn
        usage = usage_of(event.usage)
        self.usage.add(_with_entry(usage))
        output = [msgspec.json.decode(item) for item in event.output]
        raw_usage = msgspec.json.decode(event.raw_usage) if event.raw_usage else None
        self.responses.append(
            ModelResponse(output, usage, event.response_id, event.request_id, raw_usage)
        )
        self._calls = read_answer(event, self._seen_calls).tool_calls
        self._seen_calls |= {call.call_id: call.fingerprint for call in self._calls}
        self._results = {}
        return [self._add(self._item(self.agent, raw)) for raw in output]

    def _item(self, agent: Agent[Any], raw: dict[str, Any]) -> RunItem:
        match raw.get("type", "message"):
            case "message":
                return MessageOutputItem(agent, raw)
            case "reasoning":
                return ReasoningItem(agent, raw)
            case _:
                name = raw.get("name") if raw.get("type") == "function_call" else None
                tool = self._hosted.tool(self.key, name) if name else None
                return ToolCallItem(agent, raw, tool.description if tool else None)

    def _finished(self, event: CallFinished) -> list[StreamEvent]:
        if event.call in self._results or event.turn not in (self.turn, self.turn + 1):
            return []
        if event.kind in ("error", "output") and event.output:
            return self._handled(event)
        if event.kind != "tool":
            return []
        self._results[event.call] = event
        if any(call.id not in self._results for call in self._calls):
            return []
        self._outputs = {
            call.id: self._output_item(call)
            for call in self._calls
            if self._results[call.id].output
        }
        return [self._add(item) for item in self._outputs.values()]

    def _output_item(self, call: ToolCall) -> ToolCallOutputItem:
        assert self.agent is not None
        result = self._results[call.id]
        wire = msgspec.json.decode(result.output)
        kind = "custom_tool_call_output" if call.is_custom else "function_call_output"
        raw = {"call_id": call.call_id, "output": wire, "type": kind}
        custom = msgspec.json.decode(result.custom_data) if result.custom_data else None
        value = self._values[call.id] if call.id in self._values else _value_of(wire)
        return ToolCallOutputItem(self.agent, raw, value, custom)

    @property
    def last_text(self) -> str:
        """The text of the last message."""
        messages = [item for item in self.items if isinstance(item, MessageOutputItem)]
        return ItemHelpers.text_message_output(messages[-1]) if messages else ""

    def final_tool_output(self, behavior: Any) -> ToolCallOutputItem | None:
        """The item whose output ended the run, if its tool ran in this process."""
        names = behavior["stop_at_tool_names"] if isinstance(behavior, Mapping) else None
        for call in self._calls:
            if not call.is_custom and (names is None or call.name in names):
                return self._outputs.get(call.id) if call.id in self._values else None
        return None

    def _handled(self, event: CallFinished) -> list[StreamEvent]:
        assert self.agent is not None
        decision = _stop(event.output)
        if not (decision.final and decision.include_in_history and decision.value):
            return []
        raw = msgspec.json.decode(assistant_message(Raw(decision.value)))
        return [self._add(MessageOutputItem(self.agent, raw))]

    def _add(self, item: RunItem) -> RunItemStreamEvent:
        self.items.append(item)
        match item:
            case MessageOutputItem():
                return RunItemStreamEvent("message_output_created", item)
            case ReasoningItem():
                return RunItemStreamEvent("reasoning_item_created", item)
            case ToolCallItem():
                return RunItemStreamEvent("tool_called", item)
            case ToolCallOutputItem():
                return RunItemStreamEvent("tool_output", item)
            case HandoffCallItem():
                return RunItemStreamEvent("handoff_requested", item)
            case HandoffOutputItem():
                return RunItemStreamEvent("handoff_occured", item)
            case ToolApprovalItem():
                raise TypeError("an approval is no stream event")
