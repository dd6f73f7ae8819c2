"""Which items of a turn stay after a guardrail refused its output.

The log keeps all of them. The conversation and later model calls do not.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.wire.messages import CallRequested

from sandstream_actors.run.output_items import assistant_message

WITHHELD = "Output withheld by an output guardrail."
"""Replaces the output of a tool."""


def without_refused(
    items: list[Raw], start: int, asked: CallRequested, text: Raw | None
) -> list[Raw]:
    """The items without the refused ones; the turn begins at ``start``.

    Only the output of an error handler is removed. A model's answer is removed with all items of
    the turn. If a tool's result was the output, the call stays, because it has happened, with a
    replacement text as its result.
    """
    if asked.name == "handler":
        is_said = items[start:] and items[-1] == assistant_message(asked.value)
        return items[:-1] if is_said else items
    if asked.name != "tool":
        return items[:start]
    said = msgspec.json.decode(text, type=str) if text else WITHHELD
    return items[:start] + _calls_of([msgspec.json.decode(it) for it in items[start:]], said)


def _calls_of(turn: list[dict[str, Any]], text: str) -> list[Raw]:
    """The calls with their results; none, if a part of the turn cannot be separated from them."""
    kinds = {item.get("type", "message") for item in turn}
    if not kinds <= {"message", "function_call", "function_call_output"}:
        return []
    outputs = {it["call_id"] for it in turn if it.get("type") == "function_call_output"}
    kept = [it for it in turn if it.get("call_id") in outputs]
    return [
        Raw(msgspec.json.encode({**it, "output": text} if "output" in it else it)) for it in kept
    ]
