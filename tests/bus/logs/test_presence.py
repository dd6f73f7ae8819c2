"""Workers say that they are there, and only to whoever waits for it in an inbox."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import nats
import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.nats.subscription import is_inbox
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus

CONSUMER = "tools-app"


@pytest.mark.parametrize(
    ("subject", "prefix", "expected"),
    [
        ("_INBOX.a.1", "_INBOX", True),
        ("_INBOX_ann.a.1", "_INBOX", True),
        ("_INBOX.a", "mine.inbox", True),
        ("mine.inbox.a", "mine.inbox", True),
        ("mine.inboxes.a", "mine.inbox", False),
        ("", "_INBOX", False),
        ("_INBOX", "_INBOX", False),
        ("_INBOX.", "_INBOX", False),
        ("_INBOX.>", "_INBOX", False),
        ("_INBOX.*.a", "_INBOX", False),
        ("_INBOXES.a", "_INBOX", False),
        ("sandstream.run.r.cancel", "_INBOX", False),
        ("sandstream._INBOX.a", "_INBOX", False),
        ("$JS.API.STREAM.DELETE.SANDSTREAM_LOG", "_INBOX", False),
        ("_INBOX.a b", "_INBOX", False),
        ("_INBOX.a\r\nPUB x 0", "_INBOX", False),
    ],
)
def test_what_is_an_inbox(subject: str, prefix: str, expected: bool) -> None:
    assert is_inbox(subject, prefix) is expected


async def answered(bus: Bus, outsider: Any, reply: str) -> list[bytes]:
    """What comes on a subject that an outsider has chosen, up to a proper answer."""
    chosen = await outsider.subscribe(reply) if reply else None
    alive = bus.subjects.alive(CONSUMER)
    await outsider.publish(alive, b"", reply=reply)
    # answers are sent in order: with this one, the other would be here
    assert (await outsider.request(alive, b"", timeout=5)).data
    await outsider.flush()
    found = []
    while chosen is not None and chosen.pending_msgs:
        found.append((await chosen.next_msg(timeout=1)).data)
    if chosen is not None:
        await chosen.unsubscribe()
    return found


def test_an_answer_goes_to_an_inbox_or_nowhere(nats_server: NatsServer) -> None:
    failures: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, it: failures.append(it))
        async with open_bus(nats_server) as bus:
            outsider = await nats.connect(nats_server.url)
            said = await bus.presence.announce(CONSUMER)
            await bus.connection.flush()
            try:
                for inbox in ("_INBOX.chosen.1", "_INBOX_ann.1"):
                    assert len(await answered(bus, outsider, inbox)) == 1
                for reply in ("", "other.place", bus.subjects.cancel("r"), "$JS.API.INFO"):
                    assert await answered(bus, outsider, reply) == []
                assert await bus.presence.is_served(CONSUMER)
                assert not await bus.presence.is_served("tools-nobody")
            finally:
                await said.close()
                await outsider.close()
            assert await bus.log.read(RunId("r")) == []

    asyncio.run(main())
    gc.collect()  # a task whose exception nobody looked at says so now
    assert failures == []


def test_an_inbox_prefix_of_ones_own_is_answered(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server, inbox_prefix="mine.inbox") as bus,
            open_bus(nats_server, inbox_prefix="_INBOX_ann") as ann,
        ):
            said = await bus.presence.announce(CONSUMER)
            await bus.connection.flush()
            for asker in (bus, ann):
                found = await asker.presence.ask(CONSUMER)
                assert found is not None and found.highest >= 0
                # not only the benefit of the doubt
                reply = await asker.connection.request(asker.subjects.alive(CONSUMER), b"")
                assert reply.data
            await said.close()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["sandbox-local-a b", "sandbox-local-\x00", "*", ""])
def test_nobody_serves_a_name_that_no_consumer_can_have(nats_server: NatsServer, name: str) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            assert not await bus.presence.is_served(name)

    asyncio.run(main())
