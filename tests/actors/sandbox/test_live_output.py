"""Output that a box reports in large pieces reaches its listeners whole."""

from __future__ import annotations

import asyncio
import secrets

import msgspec
from sandstream_actors.sandbox.live_output import live_output
from sandstream_bus.wire.sandboxes import LiveOutput
from support.nats_server import NatsServer, open_bus
from support.waiting import eventually


def test_megabytes_at_a_time(nats_server: NatsServer) -> None:
    """A shell box reports up to four megabytes at a time, more than a server takes at once."""
    data = secrets.token_bytes(4 * 1024 * 1024 + 1)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            heard: list[LiveOutput] = []
            decode = msgspec.json.Decoder(LiveOutput).decode
            subject = bus.subjects.output("r-1")
            await bus.connection.subscribe(subject, lambda it: heard.append(decode(it.data)))
            await bus.connection.flush()
            live_output(bus, "r-1", "call-1")("stderr", 7, data)

            async def has_heard_all() -> bool:
                return sum(len(it.data) for it in heard) == len(data)

            await eventually(has_heard_all)
            assert b"".join(it.data for it in heard) == data
            at = 7
            for piece in heard:
                assert (piece.call, piece.stream, piece.offset) == ("call-1", "stderr", at)
                at += len(piece.data)
            assert bus.connection.breaks == 0

    asyncio.run(main())
