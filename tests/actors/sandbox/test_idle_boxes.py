"""Which boxes count as idle, so that they are saved and paused."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from actors.sandbox.vendor_yard import vendor_yard
from sandstream_actors.sandbox.news import IDLE
from sandstream_bus.wire.sandboxes import SandboxSpec
from support.nats_server import NatsServer
from support.waiting import until

IDLE_S = 60.0


def test_a_box_that_was_just_found_is_not_idle(nats_server: NatsServer, tmp_path: Path) -> None:
    """A close finds it first. A reaper that took it for idle would pause it right after that, and
    would have to make it again.
    """

    async def story() -> None:
        async with vendor_yard(nats_server, tmp_path) as it:
            lifecycle, _ = await it.lifecycle()
            await lifecycle.open("one", SandboxSpec(provider="vendor", idle_s=IDLE_S))
            lifecycle.forget("one")
            await lifecycle._find(await lifecycle.record("one"))
            now = time.monotonic()
            assert lifecycle.idle(now) == []
            assert lifecycle.idle(now + IDLE_S) == ["one"]

    asyncio.run(story())


def test_an_idle_box_that_is_closed_meanwhile_is_not_made_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with vendor_yard(nats_server, tmp_path) as it:
            lifecycle, _ = await it.lifecycle()
            await lifecycle.open("one", SandboxSpec(provider="vendor", idle_s=IDLE_S))
            async with lifecycle._lock("one"):
                closed = asyncio.ensure_future(
                    lifecycle.close("one", checkpoint=True, delete=False)
                )
                await asyncio.sleep(0)
                paused = asyncio.ensure_future(lifecycle.pause("one", IDLE))
                await asyncio.sleep(0)
            await closed
            await paused
            record = await lifecycle.record("one")
            assert (record.state, record.generation) == ("stopped", 1)
            await until(lambda: it.host.billed() == [])

    asyncio.run(story())
