"""Events that other replicas write to the logs of sandboxes known to this process."""

from __future__ import annotations

import msgspec
from sandstream_bus.logs.codec import NOT_JSON

IDLE = "idle"
"""The reason for pausing an unused sandbox."""


class News(msgspec.Struct):
    """The beginning of any event of a sandbox's log."""

    type: str = ""
    reason: str = ""
    node: str = ""

    def leaves_box(self, node: str) -> bool:
        """Does the sandbox keep the box that ``node`` knows, awake and on that node?"""
        if self.type == "sandbox.ready":
            return self.node == node
        return self.type in ("sandbox.checkpointed", "sandbox.mounted")

    @property
    def is_idle_pause(self) -> bool:
        return self.type == "sandbox.paused" and self.reason == IDLE


_news = msgspec.json.Decoder(News).decode


def read_news(data: bytes) -> News:
    """The event; an unreadable one is empty."""
    try:
        return _news(data)
    except NOT_JSON:
        return News()
