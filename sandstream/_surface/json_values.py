"""Encodes any value of the user's code as JSON for the bus."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.wire.error_text import sendable

__all__ = ["as_json", "as_plain", "plain_part"]


def as_json(value: Any) -> Raw:
    """The value as JSON; parts that JSON cannot represent become text."""
    try:
        return Raw(msgspec.json.encode(value, enc_hook=plain_part))
    except Exception:  # noqa: BLE001  the value's own methods may raise anything
        return Raw(msgspec.json.encode(_text(value)))


def _text(value: Any) -> str:
    try:
        return sendable(str(value))
    except Exception:  # noqa: BLE001  as above
        return f"<{type(value).__name__}>"


def as_plain(value: Any) -> Any:
    """The value after a round trip through JSON: dicts, lists, texts, numbers."""
    return msgspec.json.decode(as_json(value))


def plain_part(value: Any) -> Any:
    """The replacement for an object that JSON does not know."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)
