"""Names and attributes of call spans, by the kind of call."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.wire.messages import CallFinished, CallRequested, GuardrailRecord, HandedOff
from sandstream_bus.wire.specs import AgentSpec

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, Operation

_handed_off = msgspec.json.Decoder(HandedOff).decode


class CallShape(NamedTuple):
    name: str
    operation: Operation
    attributes: Attributes


def shape_of(call: CallRequested, agent: AgentSpec | None) -> CallShape:
    """The name, operation and attributes of a call's span."""
    attributes: Attributes = {
        semconv.CALL: call.call,
        semconv.CALL_KIND: call.kind,
        semconv.TURN: call.turn,
    }
    if call.sandbox:
        attributes[semconv.SANDBOX_ID] = call.sandbox
        if agent is not None and agent.sandbox is not None:
            attributes[semconv.SANDBOX_PROVIDER] = agent.sandbox.spec.provider
    if call.traits.is_tool:
        attributes |= _tool_attributes(call)
        return CallShape(f"{semconv.EXECUTE_TOOL} {call.name}", "tool", attributes)
    if call.traits.is_handoff:
        attributes[semconv.HANDOFF_FROM] = call.agent
        return CallShape(f"handoff from {call.agent}", "handoff", attributes)
    if call.traits.is_sandbox:
        return CallShape(f"sandbox.{call.kind}", "sandbox", attributes)
    if call.traits.uses_session:
        done = "write" if call.traits.writes_session else "read"
        return CallShape(f"memory.{done}", "memory", attributes)
    if call.traits.checks_input:
        return CallShape(f"guardrails {call.name}".rstrip(), "code", attributes)
    return CallShape(f"{call.kind} {call.name}".rstrip(), "code", attributes)


def _tool_attributes(call: CallRequested) -> Attributes:
    attributes: Attributes = {
        semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: call.name,
        semconv.TOOL_TYPE: "agent" if call.traits.is_child_run else "function",
    }
    if call.call_id:
        attributes[semconv.TOOL_CALL_ID] = call.call_id
    if call.child:
        attributes[semconv.CHILD_RUN] = call.child
    return attributes


def handoff_target(finished: CallFinished) -> str:
    """The target of a handoff, if its result names it; otherwise empty."""
    if not finished.output:
        return ""
    try:
        return _handed_off(finished.output).agent
    except NOT_JSON:  # an answer from a host in another language
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
