"""What this process knows about E2B's boxes. It is a cache that saves calls."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import msgspec

from sandstream_providers.e2b.options import DEFAULT_TIMEOUT_S, TIMEOUT
from sandstream_providers.e2b.terminal import E2BTerminal

_MOST_KEEP_S = 60.0
_SEEN_S = 10.0
"""How long a box that was seen awake is assumed to be awake."""
_MOST_BOXES = 512
_NEVER = float("-inf")


def rhythm(timeout_s: float) -> float:
    """How often a box with this time to live must be kept."""
    return max(1.0, min(_MOST_KEEP_S, timeout_s / 3))


class Known(msgspec.Struct, eq=False):
    """One box."""

    sandbox: Any = None
    """The SDK's object, with the token for commands in the box."""
    timeout_s: int = DEFAULT_TIMEOUT_S
    """Its time to live."""
    domain: str = ""
    """Below which its ports have names."""
    awake_at: float = _NEVER
    """When it was last seen awake, in seconds of the monotonic clock."""
    kept_at: float = _NEVER
    """When this process set its end last."""
    terminals: set[E2BTerminal] = msgspec.field(default_factory=set)

    @property
    def is_awake(self) -> bool:
        """Was it just seen awake?"""
        return time.monotonic() - self.awake_at < _SEEN_S

    @property
    def is_kept(self) -> bool:
        """Was its end set a short time ago?"""
        return time.monotonic() - self.kept_at < rhythm(self.timeout_s) * 0.9

    def connected(self, sandbox: Any) -> None:
        """An answer brought the token, and the box's end is as far away as its time to live."""
        self.sandbox = sandbox
        self.domain = sandbox.sandbox_domain
        self.awake_at = self.kept_at = time.monotonic()

    def described(self, info: Any, *, is_running: bool) -> None:
        self.learn(info.metadata)
        self.domain = info.sandbox_domain or self.domain
        if is_running:
            self.awake_at = time.monotonic()
        else:
            self.fell_asleep()

    def learn(self, metadata: dict[str, str]) -> None:
        seconds = metadata.get(TIMEOUT, "")
        if seconds.isdecimal() and int(seconds):
            self.timeout_s = int(seconds)

    def fell_asleep(self) -> None:
        """Its token may be another one when it wakes."""
        self.sandbox = None
        self.awake_at = _NEVER


class Knowledge:
    """The boxes that were used last."""

    def __init__(self) -> None:
        self._boxes: OrderedDict[str, Known] = OrderedDict()

    def of(self, box_id: str) -> Known:
        known = self._boxes.setdefault(box_id, Known())
        self._boxes.move_to_end(box_id)
        if len(self._boxes) > _MOST_BOXES:
            self._drop(len(self._boxes) - _MOST_BOXES)
        return known

    def _drop(self, count: int) -> None:
        """Forget boxes that were not used for long. One with a terminal is in use."""
        unused = [box_id for box_id, known in self._boxes.items() if not known.terminals]
        for box_id in unused[:count]:
            del self._boxes[box_id]

    def forget(self, box_id: str) -> None:
        self._boxes.pop(box_id, None)

    def all(self) -> list[Known]:
        return list(self._boxes.values())
