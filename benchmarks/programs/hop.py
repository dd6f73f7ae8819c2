"""One durable hop: through our bus, and through nats-py alone, on the same server.

    python hop.py sandstream asyncio|uvloop

``ours``: RunLog.send -> Worker's handler has the decoded event. ``bare``: js.publish, then
fetch(1). ``bare_waiting``: the fetch waits before the publish, as our pull loop does. All store
2 KB with a message id in a file stream.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import lab_desk
import msgspec
import nats
from msgspec import Raw
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.wire.messages import CallFinished
from sandstream_bus.wire.subjects import RunId

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings

EVENT = CallFinished(call="c", kind="tool", turn=1, output=Raw(b'"' + b"x" * 2000 + b'"'))
DATA = msgspec.json.encode(EVENT)


class Hops:
    def __init__(self, opened: Any, stream: Any, pull: Any) -> None:
        self._bus = opened.bus
        self._opened = opened
        self._stream = stream
        self._pull = pull
        self._count = 0
        self._arrived: asyncio.Future[float] | None = None

    async def start(self) -> None:
        filters = [self._bus.subjects.result(RunId("*"), "hop")]
        await Worker(self._bus, ConsumerSpec(name="hop", filters=filters), self._on_event).start()

    async def _on_event(self, delivery: Delivery) -> None:
        await self._bus.codec.run_event(delivery.data)
        assert self._arrived is not None
        self._arrived.set_result(time.perf_counter())

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        hop = {"ours": self._ours, "bare": self._bare, "bare_waiting": self._bare_waiting}
        return {"hop_s": [await hop[request["do"]]() for _ in range(request["hops"])]}

    async def _ours(self) -> float:
        self._count += 1
        self._arrived = asyncio.get_running_loop().create_future()
        subject = self._bus.subjects.result(RunId("hop"), "hop")
        began = time.perf_counter()
        await self._bus.log.send(subject, EVENT, msg_id=f"hop-{self._count}")
        return await self._arrived - began

    async def _bare(self) -> float:
        self._count += 1
        began = time.perf_counter()
        await self._stream.publish("bare.x", DATA, headers={"Nats-Msg-Id": f"b-{self._count}"})
        (message,) = await self._pull.fetch(1)
        took = time.perf_counter() - began
        await message.ack()
        return took

    async def _bare_waiting(self) -> float:
        self._count += 1
        fetching = asyncio.ensure_future(self._pull.fetch(1))
        await asyncio.sleep(0.001)  # let the pull request reach the server
        began = time.perf_counter()
        await self._stream.publish("bare.x", DATA, headers={"Nats-Msg-Id": f"b-{self._count}"})
        (message,) = await fetching
        took = time.perf_counter() - began
        await message.ack()
        return took


async def opened() -> lab_desk.Handler:
    bus = await open_bus(Settings.from_env(), name="bench-hop")
    assert bus.server is not None
    client = await nats.connect(bus.server.url, user=bus.server.user, password=bus.server.password)
    stream = client.jetstream()
    await stream.add_stream(name="BARE", subjects=["bare.>"])
    hops = Hops(bus, stream, await stream.pull_subscribe("bare.>", "bare"))
    await hops.start()
    return hops


lab_desk.serve(opened, sys.argv[2])
