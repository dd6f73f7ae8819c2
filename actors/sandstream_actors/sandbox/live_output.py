"""Publishes a command's output while it runs, and what a provider says of a box in the making.

Core NATS: not acknowledged and not stored.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sandboxes import LiveOutput
from sandstream_providers.interface import OnOutput, Stream
from sandstream_providers.progress import OnProgress

PIECE_BYTES = 64 * 1024
"""The most output in one message. A box may report megabytes at a time, and the server closes the
connection of a client that sends a message over its limit."""

_encode = msgspec.json.Encoder().encode


def live_output(bus: Bus, run: str, call: str) -> OnOutput:
    """A callback that publishes a command's output on the live subject of its run.

    Args:
        bus: The bus to publish on.
        run: The run, or the sandbox of a command without a run.
        call: The call that the output belongs to.
    """
    subject = bus.subjects.output(run)

    def publish(stream: Stream, offset: int, data: bytes) -> None:
        pieces = (
            LiveOutput(
                call=call, stream=stream, offset=offset + at, data=data[at : at + PIECE_BYTES]
            )
            for at in range(0, len(data), PIECE_BYTES)
        )
        bus.connection.publish_now(subject, [_encode(it) for it in pieces])

    return publish


def live_progress(bus: Bus, run: str, call: str) -> OnProgress:
    """A callback that publishes lines of a provider as output of the call that opens its box.

    Args:
        bus: The bus to publish on.
        run: The run.
        call: The call that opens the box.
    """
    publish = live_output(bus, run, call)
    said = 0

    def tell(text: str) -> None:
        nonlocal said
        data = f"{text}\n".encode()
        publish("stderr", said, data)
        said += len(data)

    return tell
