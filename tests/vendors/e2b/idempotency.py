"""Keys with which clients name a creation, so that repeating it makes no second box."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


class KeyConflict(Exception):
    """The key cannot be used for this request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass
class _Entry:
    body: str
    box_id: str | None = None
    """``None`` while the first request with the key is in progress."""


class KeyBook:
    """What each key was used for. Keys are never forgotten."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def claim(self, key: str, body: dict[str, Any]) -> str | None:
        """The id of the box that this key has made; ``None``: the caller makes it now.

        Raises:
            KeyConflict: another request, or one that is still in progress.
        """
        text = json.dumps(body, sort_keys=True)
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(text)
            return None
        if entry.body != text:
            raise KeyConflict(
                422,
                "idempotency_request_mismatch",
                "The idempotency key was already used with a different request",
            )
        if entry.box_id is None:
            raise KeyConflict(
                409,
                "idempotency_in_progress",
                "A request with this idempotency key is still in progress",
            )
        return entry.box_id

    def settle(self, key: str, box_id: str) -> None:
        self._entries[key].box_id = box_id

    def release(self, key: str) -> None:
        """The request failed and made nothing: the key is free again."""
        del self._entries[key]


OUTCOME_UNKNOWN = KeyConflict(
    409,
    "idempotency_outcome_unknown",
    "The outcome of the request with this idempotency key is unknown",
)
"""The box of the key is dead. What the hosted vendor answers is not documented."""
