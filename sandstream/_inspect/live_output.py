"""The output of commands while they run: pieces that are not stored, in order and each once."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.nats.live_copies import is_unstored
from sandstream_bus.nats.subscription import CoreMessage
from sandstream_bus.wire.sandboxes import LiveOutput

Stream = Literal["stdout", "stderr"]
BOTH: tuple[Stream, Stream] = ("stdout", "stderr")
_decode = msgspec.json.Decoder(LiveOutput).decode


class OutputText:
    """One command's output as text. Bytes that come twice or late are left out."""

    def __init__(self) -> None:
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in BOTH}
        self._offsets = dict.fromkeys(BOTH, 0)

    def take(self, piece: LiveOutput) -> str:
        """What is new in a piece."""
        known = self._offsets[piece.stream]
        end = piece.offset + len(piece.data)
        if end <= known:
            return ""
        self._offsets[piece.stream] = end
        data = piece.data[max(0, known - piece.offset) :]
        return self._decoders[piece.stream].decode(data)


@contextlib.asynccontextmanager
async def heard(bus: Bus, run: str, take: Callable[[LiveOutput], None]) -> AsyncIterator[None]:
    """Give the output of a run's commands to ``take`` as it comes."""

    def receive(message: CoreMessage) -> None:
        if not is_unstored(message):
            return
        try:
            piece = _decode(message.data)
        except NOT_JSON:  # a client can direct a server's acknowledgement to this subject
            return
        take(piece)

    subscription = await bus.connection.subscribe(bus.subjects.output(run), receive)
    try:
        yield
    finally:
        await subscription.close()
