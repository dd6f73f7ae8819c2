"""The base of all tagged messages, and a failure as data, which several of them contain."""

from __future__ import annotations

from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all tagged messages."""


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure as data: what failed, on what, and which exception the caller should raise."""

    code: str
    """The stable name of the kind of failure; branch on it, not on the text."""
    message: str
    """What failed, for people."""
    data: dict[str, Any] = {}
    """Facts about the failure, by name."""
    raised_by: str = ""
    """The call of the user's code that raised it, as ``<run>/<call>``."""
