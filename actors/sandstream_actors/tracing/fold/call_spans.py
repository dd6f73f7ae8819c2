"""What the span of a call is called and carries, by the kind of call."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from sandstream_bus.codec import NOT_JSON
from sandstream_bus.messages import CallFinished, CallRequested, GuardrailRecord, HandedOff
from sandstream_bus.specs import AgentSpec

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, Operation

_handed_off = msgspec.json.Decoder(HandedOff).decode
_MEMORY = {"history": "memory.read", "save": "memory.write"}
_SANDBOX = frozenset({"open", "checkpoint", "close"})


class CallShape(NamedTuple):
    name: str
    operation: Operation
    attributes: Attributes


def shape_of(call: CallRequested, agent: AgentSpec | None) -> CallShape:
    """How a call is drawn."""
    attributes: Attributes = {
        semconv.CALL: call.call,
        semconv.CALL_KIND: call.kind,
        semconv.TURN: call.turn,
    }
    if call.sandbox:
        attributes[semconv.SANDBOX_ID] = call.sandbox
        if agent is not None and agent.sandbox is not None:
            attributes[semconv.SANDBOX_PROVIDER] = agent.sandbox.spec.provider
    if call.kind in ("tool", "child"):
        attributes |= _tool_attributes(call)
        return CallShape(f"{semconv.EXECUTE_TOOL} {call.name}", "tool", attributes)
    if call.kind == "handoff":
        attributes[semconv.HANDOFF_FROM] = call.agent
        return CallShape(f"handoff from {call.agent}", "handoff", attributes)
    if call.kind in _SANDBOX:
        return CallShape(f"sandbox.{call.kind}", "sandbox", attributes)
    if call.kind in _MEMORY:
        return CallShape(_MEMORY[call.kind], "memory", attributes)
    if call.kind == "guard":
        return CallShape(f"guardrails {call.name}".rstrip(), "code", attributes)
    return CallShape(f"{call.kind} {call.name}".rstrip(), "code", attributes)


def _tool_attributes(call: CallRequested) -> Attributes:
    attributes: Attributes = {
        semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: call.name,
        semconv.TOOL_TYPE: "function" if call.kind == "tool" else "agent",
    }
    if call.call_id:
        attributes[semconv.TOOL_CALL_ID] = call.call_id
    if call.child:
        attributes[semconv.CHILD_RUN] = call.child
    return attributes


def handoff_target(finished: CallFinished) -> str:
    """Where a handoff went, as far as its outcome says."""
    if not finished.output:
        return ""
    try:
        return _handed_off(finished.output).agent
    except NOT_JSON:  # what a host in another language answered
        return ""


def guardrail_attributes(record: GuardrailRecord) -> Attributes:
    attributes: Attributes = {
        semconv.GUARDRAIL_NAME: record.name,
        semconv.GUARDRAIL_KIND: record.kind,
        semconv.GUARDRAIL_TRIPPED: record.tripped,
    }
    if record.behavior:
        attributes["sandstream.guardrail.behavior"] = record.behavior
    return attributes
