"""Calls, outputs, items, errors and numbers of runs as plain text, without any layout."""

from __future__ import annotations

from typing import Any

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.wire.messages import ErrorInfo, GuardrailRecord, TokenUsage


def count(number: int) -> str:
    """A count in at most six characters: 950, 12.3k, 4.56M."""
    if number < 10_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1000:.1f}k"
    return f"{number / 1e6:.2f}M"


def usage_text(usage: TokenUsage) -> str:
    return f"{count(usage.input_tokens)} in, {count(usage.output_tokens)} out"


def tokens_text(tokens: int) -> str:
    return numbered(tokens, "token", shown=count(tokens))


def error_text(error: ErrorInfo) -> str:
    return f"{error.code}: {error.message}"


def call_text(name: str, arguments: str) -> str:
    """A call as Python would write it."""
    try:
        decoded = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return f"{name}({arguments})"
    if not isinstance(decoded, dict):
        return f"{name}({arguments})"
    pairs = [f"{key}={msgspec.json.encode(value).decode()}" for key, value in decoded.items()]
    return f"{name}({', '.join(pairs)})"


def output_text(raw: msgspec.Raw) -> str:
    """A JSON output as text: strings as they are, the rest as JSON."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return bytes(raw).decode("utf-8", "replace")
    return value_text(value)


def value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        texts = [_part_text(part) for part in value]
        if all(texts):
            return " ".join(texts)
    return msgspec.json.encode(value).decode()


def item_text(item: Any) -> str:
    """What a message or reasoning item says."""
    if not isinstance(item, dict):
        return value_text(item)
    content = item.get("content") or item.get("summary") or ""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content if isinstance(part, dict))


def _part_text(part: dict[str, Any]) -> str:
    text = part.get("text") or part.get("refusal")
    if isinstance(text, str):
        return text
    kind = str(part.get("type", ""))
    return f"[{kind.removeprefix('input_')}]" if kind else ""


def guardrail_text(record: GuardrailRecord) -> str:
    """What a guardrail objected to; empty if to nothing."""
    which = f"{record.kind.replace('_', ' ')} guardrail {record.name}"
    if record.tripped:
        return f"{which} tripped"
    if record.behavior == "reject_content":
        return f"{which} refused: {record.message}"
    return ""
