"""Reads a model's answer, decoding only what the loop needs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.wire.messages import InputStaged, ModelAnswered
from sandstream_bus.wire.specs import AgentSpec

from sandstream_actors.model.responses_request import FAKE_ID


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    """The few fields of an output item that determine the next step."""

    type: str = "message"
    id: str | None = None
    name: str = ""
    call_id: str = ""
    arguments: str = ""
    input: str = ""
    content: list[_Part] | None = None


_decode_item = msgspec.json.Decoder(_Item).decode
_encode = msgspec.json.encode

_HOSTED_TOOLS = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)
_QUIET = frozenset({"message", "reasoning", "compaction"})


class ToolCall(msgspec.Struct, frozen=True):
    """A call of the model; ``id`` is ours, ``call_id`` the model's."""

    id: str
    name: str
    call_id: str
    arguments: str
    is_custom: bool = False
    """A freeform tool: ``arguments`` is plain text."""

    @property
    def fingerprint(self) -> str:
        return f"{self.name}({self.arguments})"


class AnswerView(msgspec.Struct):
    """One model answer as the loop sees it."""

    event: ModelAnswered
    tool_calls: list[ToolCall]
    text: str | None
    """The text of the last message; None if there is no message."""
    refusal: str | None
    has_hosted_tools: bool
    misuse: str | None
    """How the answer violates the protocol, if it does."""
    replays: set[int]
    """The positions of calls that repeat an earlier one: they are dropped."""

    @property
    def uses_tools(self) -> bool:
        return bool(self.tool_calls) or self.has_hosted_tools

    def input_items(self, *, omit_reasoning_ids: bool) -> list[Raw]:
        """The answer's items as input of the next call."""
        items = self.event.output
        if self.replays:
            items = [item for place, item in enumerate(items) if place not in self.replays]
        if not omit_reasoning_ids:
            return items
        return [_without_reasoning_id(item) for item in items]


def read_answer(event: ModelAnswered, seen_calls: Mapping[str, str]) -> AnswerView:
    """Read an answer. Never raises: ``misuse`` names a violation.

    ``seen_calls`` are the call ids of earlier answers with their fingerprints: an exact replay is
    dropped; the same id for another call is misuse.
    """
    calls: list[ToolCall] = []
    seen = dict(seen_calls)
    misuse: str | None = None
    text: str | None = None
    refusal: str | None = None
    hosted = False
    replays: set[int] = set()
    for place, raw in enumerate(event.output):
        try:
            item = _decode_item(raw)
        except msgspec.DecodeError:
            misuse = "The model answered with an item that has not the shape of its type"
            continue
        if item.type in ("function_call", "custom_tool_call"):
            custom = item.type == "custom_tool_call"
            call = ToolCall(
                f"t{event.turn}-{len(calls)}",
                item.name,
                item.call_id,
                item.input if custom else item.arguments,
                custom,
            )
            if not call.call_id:
                misuse = f"The model called {call.name or 'a tool'} without a call id"
            elif call.call_id not in seen:
                seen[call.call_id] = call.fingerprint
                calls.append(call)
            elif seen[call.call_id] != call.fingerprint:
                misuse = f"The model used call id {call.call_id} for two different calls"
            else:
                replays.add(place)
        elif item.type == "message":
            parts = item.content or []
            text = "".join(part.text for part in parts if part.type == "output_text")
            refusals = [part.refusal for part in parts if part.type == "refusal"]
            refusal = refusals[-1] if refusals else None
        elif item.type in _HOSTED_TOOLS:
            hosted = True
        elif item.type not in _QUIET:
            misuse = f"The model answered with an item of the unknown type {item.type!r}"
    return AnswerView(event, calls, text, refusal, hosted, misuse, replays)


def user_message(text: str) -> Raw:
    return Raw(_encode({"content": text, "role": "user"}))


def assistant_message(value: Raw) -> Raw:
    """A final output that did not come from the model, as a message in the history.

    Its id is a placeholder that the model client omits, because the endpoint never assigned one.
    """
    decoded: Any = msgspec.json.decode(value)
    text = decoded if isinstance(decoded, str) else bytes(value).decode()
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {
        "id": FAKE_ID,
        "content": [part],
        "role": "assistant",
        "status": "completed",
        "type": "message",
    }
    return Raw(_encode(message))


def call_output_item(call: ToolCall, output: Raw) -> Raw:
    kind = "custom_tool_call_output" if call.is_custom else "function_call_output"
    return Raw(_encode({"call_id": call.call_id, "output": output, "type": kind}))


SECOND_HANDOFF = "Multiple handoffs detected, ignoring this one."


def handoff_outputs(calls: list[ToolCall], name: str) -> list[Raw]:
    """The outputs for an answer's handoff calls: only the first handoff is accepted."""
    taken = Raw(_encode(json.dumps({"assistant": name})))
    ignored = [call_output_item(call, Raw(_encode(SECOND_HANDOFF))) for call in calls[1:]]
    return [*ignored, *(call_output_item(call, taken) for call in calls[:1])]


def staged_items(event: InputStaged) -> list[Raw]:
    """Input that came during the run, as items."""
    return [user_message(event.input)] if isinstance(event.input, str) else event.input


def without_orphans(items: list[Raw]) -> list[Raw]:
    """A history that an endpoint accepts: calls without outputs, and outputs without calls, are
    left out.
    """
    heads = [_head(item) for item in items]
    called = {head.call_id for head in heads if head.type in _CALLS}
    answered = {head.call_id for head in heads if head.type in _OUTPUTS}
    paired = called & answered
    return [
        item
        for item, head in zip(items, heads, strict=True)
        if head.call_id in paired or head.type not in (*_CALLS, *_OUTPUTS)
    ]


def since_compaction(agent: AgentSpec, items: list[Raw]) -> list[Raw]:
    """What an agent reads of a conversation. If it has long ones compacted, the last compaction
    stands for all that came before it.
    """
    for index in range(len(items) - 1, -1, -1) if agent.compacts else ():
        if _head(items[index]).type == "compaction":
            return items[index:]
    return items


class _Head(msgspec.Struct):
    type: str = ""
    call_id: str = ""


_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_decode_head = msgspec.json.Decoder(_Head).decode


def _head(item: Raw) -> _Head:
    try:
        return _decode_head(item)
    except msgspec.DecodeError:  # not validated here: the endpoint reports the error
        return _Head()


def _without_reasoning_id(raw: Raw) -> Raw:
    item = msgspec.json.decode(raw)
    if isinstance(item, dict) and item.get("type") == "reasoning":
        item.pop("id", None)
        return Raw(_encode(item))
    return raw
