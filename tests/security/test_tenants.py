"""Two tenants on one server, with the same prefix and the same names, share nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from sandstream_bus.errors import BusUnavailable
from sandstream_bus.nats.connection import Connection
from security.attacks import api_calls
from security.contents import SEEDS, api, contents, sow
from security.guarded import Guarded, tenants

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with tenants(tmp_path_factory.mktemp("tenants"), "acme=300MB", "globex=1GB") as found:
        yield found


def test_each_sees_its_own(world: Guarded) -> None:
    """Also with all rights: administrators read, write and list only what is theirs."""

    async def look() -> None:
        acme, globex = await world.connect("acme.admin"), await world.connect("globex.admin")
        empty = await contents(globex)
        heard = await globex.subscribe("sandstream.>")
        theirs = await world.connect("globex.alice")
        inboxes = await theirs.subscribe("_INBOX.alice.>")
        await theirs.flush()
        await globex.flush()
        await sow(acme)
        alice = await world.connect("acme.alice")
        ack = await alice.request(
            "sandstream.ask.alice.task.clerk", b"{}", timeout=5, headers={"Nats-Msg-Id": "same"}
        )
        assert json.loads(ack.data)["seq"] == 2
        filled = await contents(acme)
        assert await contents(globex) == empty
        assert all(not it["messages"] for name, it in empty.items() if name != "streams")

        account = await api(globex, "INFO")
        assert account["streams"] == len(empty["streams"]) and account["consumers"] == 0
        for subscription in (heard, inboxes):
            with pytest.raises(TimeoutError):
                await subscription.next_msg(timeout=0.3)

        # the same subjects, message ids and names are other messages
        await sow(globex)
        for subject in SEEDS:
            await globex.publish(subject, b"theirs", reply="sandstream.run.victim.done")
        for call in api_calls():
            await globex.publish(call, b"")
        await globex.flush()
        await api(globex, "INFO")
        assert await contents(acme) == filled
        for connection in (acme, globex, alice, theirs):
            await connection.close()

    asyncio.run(look())


def test_a_password_of_one_is_nothing_at_the_other(world: Guarded) -> None:
    password = world.env("acme.alice")["NATS_PASSWORD"]
    options = world.server.options(user="globex.alice", password=password)
    with pytest.raises(BusUnavailable, match=r"(?i)authorization"):
        asyncio.run(Connection.open(options))


def test_each_has_limits_of_its_own(world: Guarded) -> None:
    async def fill() -> list[Any]:
        acme = await world.connect("acme.admin")
        limits = (await api(acme, "INFO"))["limits"]
        config = {"storage": "file", "max_bytes": 400_000_000}
        big = await api(acme, "STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["big"]} | config)
        more = []
        for number in range(limits["max_streams"]):
            name = f"M{number}"
            body = {"name": name, "subjects": [f"m.{number}"], "storage": "memory"}
            more.append(await api(acme, f"STREAM.CREATE.{name}", body))
        for number in range(limits["max_streams"]):
            await api(acme, f"STREAM.DELETE.M{number}")
        await acme.close()
        return [limits, big, more]

    limits, big, more = asyncio.run(fill())
    assert limits["max_storage"] == 300_000_000 and limits["max_streams"] == 12
    assert "error" in big and "storage" in big["error"]["description"]
    assert "maximum number of streams" in more[-1]["error"]["description"]
