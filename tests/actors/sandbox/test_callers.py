"""Whoever asks something of a sandbox gets an answer, also when nobody can give the right one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from actors.sandbox.yard import yard
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import (
    Probe,
    SandboxReply,
    SandboxRequest,
)
from support.nats_server import NatsServer

from sandstream.sandbox.errors import ProviderUnavailableError


def test_nobody_serves_the_provider(nats_server: NatsServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            bus = await it.bus()
            bus.sandboxes.patience_s = 0.05
            session = await it.session(bus)
            with pytest.raises(ProviderUnavailableError, match="no actor has served local"):
                await session.start()

    asyncio.run(story())


def test_a_request_that_cannot_be_read_is_answered(nats_server: NatsServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor()
            bus = await it.bus()
            answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            listening = await bus.connection.subscribe(
                bus.subjects.sandbox_reply("one", "op1"), lambda it: answered.set_result(it.data)
            )
            nonsense = {"type": "sandbox.request", "op": "op1", "action": {"do": "fly"}}
            await bus.connection.publish(
                bus.subjects.sandbox_op("one", "local"), msgspec.json.encode(nonsense), msg_id="1"
            )
            reply = msgspec.json.decode(await answered, type=SandboxReply)
            assert reply.error is not None
            assert reply.error.code == "parked"
            await listening.close()

    asyncio.run(story())


@pytest.mark.parametrize("field", ["op", "run"])
def test_names_in_requests_cannot_become_commands_to_the_server(
    nats_server: NatsServer, tmp_path: Path, field: str
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor()
            bus = await it.bus()
            session = await it.session(bus)
            await session.start()
            heard: list[bytes] = []
            listening = await bus.connection.subscribe(
                "forged", lambda message: heard.append(message.data)
            )
            forged = "x 0\r\n\r\nPUB forged 4\r\nevil\r\nPUB x"
            names = {"op": "op1", field: forged}
            command = {"do": "exec", "argv": ["echo", "loud"]}
            request = {"type": "sandbox.request", "action": command, **names}
            await bus.connection.publish(
                bus.subjects.sandbox_op(session.sandbox_id, "local"),
                msgspec.json.encode(request),
                msg_id="1",
            )
            while not await bus.parking.list():
                await asyncio.sleep(0.01)
            assert (await session.exec("echo still here")).ok()
            assert heard == []
            await listening.close()

    asyncio.run(story())


def test_a_sandbox_of_a_process_that_is_gone_is_brought_here(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            gone = await it.actor(node="own-gone")
            session = await it.session(node="own-gone")
            await session.start()
            assert (await session.exec("echo kept > kept")).ok()
            await session.checkpoint()
            await gone.stop()
            await it.actor(node="own-next")
            later = await it.session(node="own-next")
            later.remote.sandbox = later.state.sandbox_id = session.sandbox_id
            assert not await later.running()
            await later.start()
            assert (await later.exec("cat kept")).stdout == b"kept\n"

    asyncio.run(story())


def test_a_question_for_a_dead_node_does_not_go_round(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            gone = await it.actor(node="gone")
            session = await it.session(node="gone")
            await session.start()
            await gone.stop()
            other = await it.actor(node="next", home=it.home)
            await other.adopt("gone", start_sequence=1)
            bus = await it.bus()
            request = SandboxRequest(op=new_op(), action=Probe())
            reply = await bus.sandboxes.request(
                session.sandbox_id, request, provider="local", node="gone"
            )
            assert b'"running":false' in bytes(reply.result)

    asyncio.run(story())
