"""Values of the user as JSON: what he returns goes onto the bus, whatever it is."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

__all__ = ["as_json", "as_plain", "plain_part"]


def as_json(value: Any) -> Raw:
    """The value as JSON; what JSON cannot say becomes its text."""
    try:
        return Raw(msgspec.json.encode(value, enc_hook=plain_part))
    except (TypeError, ValueError, RecursionError):
        text = str(value).encode(errors="backslashreplace").decode()
        return Raw(msgspec.json.encode(text))


def as_plain(value: Any) -> Any:
    """The value as JSON would bring it back: dicts, lists, texts, numbers."""
    return msgspec.json.decode(as_json(value))


def plain_part(value: Any) -> Any:
    """What stands for an object that JSON does not know."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)
