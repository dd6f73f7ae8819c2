"""The journal of a vendor server: every call that reached it, in order of arrival.

Tests assert what the vendor saw, not what the client believes it did.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from typing import Any, Self

LONGEST_TEXT = 200


@dataclass
class Call:
    """One request. ``status`` stays ``None`` while it is in flight, and for good if the vendor
    never answered it; ``fault`` then says why.
    """

    number: int
    time: float
    """Seconds since the epoch, at arrival."""
    method: str
    """The HTTP method, or ``WS`` for the opening of a websocket."""
    path: str
    """The route with ``{names}`` in place of ids, without the vendor's prefix."""
    box: str | None = None
    """The id of the box, if the call is about one."""
    status: int | None = None
    fault: str | None = None
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    """The decoded JSON with long texts shortened; for other contents their type and size."""
    headers: dict[str, str] = field(default_factory=dict)
    """Those of the request, with names in lower case."""
    seconds: float | None = None
    """From arrival to the end of the answer or stream."""

    @property
    def name(self) -> str:
        """``POST /sandbox``: what ``Fault.match`` is compared with."""
        return f"{self.method} {self.path}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        return cls(**found)


class Journal:
    """The calls so far, and the mistakes that the server found in them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.protocol_errors: list[str] = []

    def add(self, method: str, path: str, box: str | None, query: dict[str, str]) -> Call:
        call = Call(len(self.calls), time.time(), method, path, box, query=query)
        self.calls.append(call)
        return call

    def protocol_error(self, name: str, text: str) -> None:
        """Note a request that a client of this vendor must not send."""
        self.protocol_errors.append(f"{name}: {text}")

    def calls_of(self, box: str) -> int:
        """The number of calls about one box."""
        return sum(call.box == box for call in self.calls)


def summary(content: bytes, content_type: str) -> Any:
    """The body of a request as the journal keeps it."""
    if content_type == "application/json" and content:
        try:
            return _shortened(json.loads(content))
        except ValueError:
            return f"invalid JSON, {len(content)} bytes"
    return f"{content_type}, {len(content)} bytes" if content else None


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return value
