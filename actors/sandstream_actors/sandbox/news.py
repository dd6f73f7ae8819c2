"""What other replicas write into the logs of sandboxes, as far as it matters to who knows them."""

from __future__ import annotations

import msgspec
from sandstream_bus.logs.codec import NOT_JSON

IDLE = "idle"
"""Why a sandbox was paused that nobody seemed to use."""


class News(msgspec.Struct):
    """The beginning of any event of a sandbox's log."""

    type: str = ""
    reason: str = ""
    node: str = ""

    def leaves_box(self, node: str) -> bool:
        """The box that was known to ``node`` is still the sandbox's, awake, and its own."""
        if self.type == "sandbox.ready":
            return self.node == node
        return self.type in ("sandbox.checkpointed", "sandbox.mounted")

    @property
    def is_idle_pause(self) -> bool:
        return self.type == "sandbox.paused" and self.reason == IDLE


_news = msgspec.json.Decoder(News).decode


def read_news(data: bytes) -> News:
    """What the event says; one that cannot be read says nothing."""
    try:
        return _news(data)
    except NOT_JSON:
        return News()
