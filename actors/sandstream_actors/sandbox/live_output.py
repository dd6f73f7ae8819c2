"""Publishes a command's output while it runs. Core NATS: not acknowledged and not stored."""

from __future__ import annotations

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sandboxes import LiveOutput
from sandstream_providers.interface import OnOutput, Stream

_encode = msgspec.json.Encoder().encode


def live_output(bus: Bus, run: str, call: str) -> OnOutput:
    subject = bus.subjects.output(run)

    def publish(stream: Stream, offset: int, data: bytes) -> None:
        piece = LiveOutput(call=call, stream=stream, offset=offset, data=data)
        bus.connection.publish_now(subject, [_encode(piece)])

    return publish
