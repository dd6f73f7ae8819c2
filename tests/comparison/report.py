"""What is seen of a program, as JSON: results, errors, stream events. The same for both SDKs."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Any value as JSON, with the class names of objects."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, BaseException):
        return error_report(value)
    if hasattr(value, "model_dump"):
        return {"class": type(value).__name__, **plain(value.model_dump())}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, **plain(fields)}
    return {"class": type(value).__name__}


def item_report(item: Any) -> dict[str, Any]:
    if item.type == "tool_approval_item":
        return approval_report(item)
    report: dict[str, Any] = {
        "class": type(item).__name__,
        "type": item.type,
        "agent": item.agent.name,
        "input_item": plain(item.to_input_item()),
        "raw_class": type(item.raw_item).__name__,
    }
    if item.type == "handoff_output_item":
        report["handoff"] = [item.source_agent.name, item.target_agent.name]
    if item.type == "tool_call_output_item":
        report["output"] = plain(item.output)
        report["custom_data"] = plain(item.custom_data)
    if item.type == "tool_call_item":
        report["description"] = item.description
    if item.type.startswith("tool_call"):
        report["call_id"] = item.call_id
        report |= origin_report(item)
    return report


def approval_report(item: Any) -> dict[str, Any]:
    """A call that waits for an answer; it is never sent to the model."""
    return {
        "class": type(item).__name__,
        "type": item.type,
        "agent": item.agent.name,
        "name": item.name,
        "tool_name": item.tool_name,
        "arguments": item.arguments,
        "call_id": item.call_id,
        "raw_class": type(item.raw_item).__name__,
        **origin_report(item),
    }


def origin_report(item: Any) -> dict[str, Any]:
    """Where a tool comes from, unless it is a plain function."""
    origin = getattr(item, "tool_origin", None)
    if origin is None or origin.type.value == "function":
        return {}
    shown = (origin.type.value, origin.mcp_server_name, origin.agent_name, origin.agent_tool_name)
    return {"origin": list(shown)}


_GUARDRAIL_RESULTS = (
    "input_guardrail_results",
    "output_guardrail_results",
    "tool_input_guardrail_results",
    "tool_output_guardrail_results",
)


def guardrails_report(data: Any) -> dict[str, Any]:
    """The lists of results that are not empty, of a result or of an error's data."""
    lists = {name: getattr(data, name, []) for name in _GUARDRAIL_RESULTS}
    return {
        name: [guardrail_report(one) for one in found] for name, found in lists.items() if found
    }


def guardrail_report(result: Any) -> dict[str, Any]:
    report: dict[str, Any] = {
        "class": type(result).__name__,
        "guardrail": result.guardrail.get_name(),
        "output": plain(result.output),
    }
    if hasattr(result, "agent_output"):
        report |= {"agent": result.agent.name, "agent_output": plain(result.agent_output)}
    return report


def usage_report(usage: Any) -> dict[str, Any]:
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        "entries": [
            [entry.input_tokens, entry.output_tokens, entry.total_tokens]
            for entry in usage.request_usage_entries
        ],
    }


def result_report(result: Any) -> dict[str, Any]:
    return {
        "class": type(result).__name__,
        "input": plain(result.input),
        "final_output": plain(result.final_output),
        "items": [item_report(item) for item in result.new_items],
        "responses": [
            {
                "output": plain(response.to_input_items()),
                "id": response.response_id,
                "usage": usage_report(response.usage),
            }
            for response in result.raw_responses
        ],
        "usage": usage_report(result.context_wrapper.usage),
        "last_agent": result.last_agent.name,
        "last_response_id": result.last_response_id,
        "input_list": plain(result.to_input_list()),
        **guardrails_report(result),
        **interruptions_report(result),
    }


def interruptions_report(result: Any) -> dict[str, Any]:
    waiting = getattr(result, "interruptions", [])
    return {"interruptions": [item_report(item) for item in waiting]} if waiting else {}


def error_report(error: BaseException) -> dict[str, Any]:
    report: dict[str, Any] = {
        "class": type(error).__name__,
        "bases": [base.__name__ for base in type(error).__mro__[1:-1] if base.__name__[0] != "_"],
        "message": str(error),
    }
    for name in ("status_code", "code", "refusal", "tool_name", "timeout_seconds"):
        if hasattr(error, name) and not (name == "code" and hasattr(error, "run_data")):
            report[name] = plain(getattr(error, name))
    if hasattr(error, "guardrail_result"):
        report["guardrail_result"] = guardrail_report(error.guardrail_result)
    if hasattr(error, "guardrail"):
        tripped: Any = error  # of either SDK
        report |= {"guardrail": tripped.guardrail.get_name(), "output": plain(tripped.output)}
    if error.__cause__ is not None:
        report["cause"] = type(error.__cause__).__name__
    data = getattr(error, "run_data", None)
    if data is not None:
        report["run_data"] = {
            "input": plain(data.input),
            "items": [item.type for item in data.new_items],
            "responses": len(data.raw_responses),
            "last_agent": data.last_agent.name,
            "usage": usage_report(data.context_wrapper.usage),
            **guardrails_report(data),
        }
    return report


def event_report(event: Any) -> list[Any]:
    if event.type == "raw_response_event":
        return ["raw", event.data.type, type(event.data).__name__]
    if event.type == "run_item_stream_event":
        return ["item", event.name, item_report(event.item)]
    return ["agent", event.new_agent.name]


async def stream_report(result: Any) -> dict[str, Any]:
    """Iterates a streamed run to its end, or to its error."""
    events: list[Any] = []
    report: dict[str, Any] = {"events": events}
    try:
        async for event in result.stream_events():
            events.append(event_report(event))
    except Exception as error:
        report["raised"] = error_report(error)
    report |= result_report(result)
    report |= {"is_complete": result.is_complete, "turn": result.current_turn}
    return report
