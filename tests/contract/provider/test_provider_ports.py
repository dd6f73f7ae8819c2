"""Declared ports are reached from the host; others are not."""

from __future__ import annotations

import asyncio
import socket

import pytest
from contract.stage import COMMAND_S, Heard, Stage, new_op, run
from sandstream_providers.interface import Box, PortUnavailable

SERVER = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data.upper())
    connection.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
DIAL = """
if command -v python3 >/dev/null; then
  exec python3 -c 'import socket, sys; socket.create_connection(sys.argv[1:])' "$@"
fi
nc -w 3 "$@" -e true
"""
"""Exits with 0 if a connection can be made, with 1 if not. Plain images have nc of busybox."""


def _free_port() -> int:
    """Without isolation the box's port is the host's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def _serve(box: Box, port: int) -> tuple[str, asyncio.Task[object]]:
    op, heard = new_op(), Heard()
    argv = ("python3", "-c", SERVER, str(port))
    task: asyncio.Task[object] = asyncio.create_task(run(box, *argv, op=op, on_output=heard))
    await heard.until(b"up")
    return op, task


async def _ask(address: tuple[str, int], text: bytes) -> bytes:
    """Empty if nobody answers."""
    try:
        reader, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return b""
    try:
        writer.write(text)
        async with asyncio.timeout(COMMAND_S):
            return await reader.read(len(text))
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.needs("tcp_ports")
def test_a_declared_port_is_reached(stage: Stage) -> None:
    async def story() -> None:
        port = _free_port()
        async with stage.fresh(ports=[port]) as box:
            address = await box.port(port)
            assert await _ask(address, b"early") == b"", "nobody listens yet"
            op, task = await _serve(box, port)
            assert await box.port(port) == address
            assert await _ask(address, b"hello") == b"HELLO"
            await box.kill(op)
            await task
            assert await _ask(address, b"late") == b""
            op, task = await _serve(box, port)
            assert await _ask(address, b"again") == b"AGAIN"
            async with stage.another_process() as other:
                theirs = await other.get(box.key)
                assert theirs is not None
                assert await theirs.port(port) == address
            await box.kill(op)
            await task

    stage.run(story())


@pytest.mark.needs("tcp_ports")
def test_two_connections_at_once_and_much_data(stage: Stage) -> None:
    async def story() -> None:
        port = _free_port()
        async with stage.fresh(ports=[port]) as box:
            op, task = await _serve(box, port)
            one, two = [await asyncio.open_connection(*await box.port(port)) for _ in range(2)]
            big = b"x" * 3_000_000
            one[1].write(big)
            two[1].write(b"small")
            assert await two[0].readexactly(5) == b"SMALL"
            assert await one[0].readexactly(len(big)) == big.upper()
            for _, writer in (one, two):
                writer.close()
                await writer.wait_closed()
            await box.kill(op)
            await task

    stage.run(story())


def test_an_undeclared_port(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(ports=[_free_port()]) as box:
            with pytest.raises(PortUnavailable) as caught:
                await box.port(1)
            assert caught.value.data["port"] == 1

    stage.run(story())


@pytest.mark.needs("tcp_ports")
def test_ports_after_a_restart(stage: Stage) -> None:
    async def story() -> None:
        port = _free_port()
        async with stage.fresh(ports=[port]) as box:
            await stage.provider.stop(box.key)
            again = await stage.provider.get(box.key)
            assert again is not None
            op, task = await _serve(again, port)
            assert await _ask(await again.port(port), b"hello") == b"HELLO"
            await again.kill(op)
            await task

    stage.run(story())


@pytest.mark.needs("closed_network")
def test_without_network_the_host_is_not_reached(stage: Stage) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            dial = ("sh", "-c", DIAL, "dial", host, str(port))
            async with stage.fresh() as closed, stage.fresh(network="host") as opened:
                assert (await run(closed, *dial)).exit_code == 1
                reached = stage.contender.has("host_network")
                assert (await run(opened, *dial)).exit_code == (0 if reached else 1)

    stage.run(story())
