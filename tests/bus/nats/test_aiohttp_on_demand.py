"""Websockets work, and programs without one do not import aiohttp, although it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nats
import pytest
import sandstream_bus
from support.nats_server import NatsServer


def says(program: str, *arguments: str, **variables: str) -> str:
    command = [sys.executable, *arguments, "-c", program]
    env = os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "program",
    ["from sandstream import Runner", "import sandstream.cli.main", "import sandstream_bus.bus"],
)
def test_a_program_does_not_import_aiohttp(program: str) -> None:
    assert says(f"{program}\nimport sys\nprint('aiohttp' in sys.modules)") == "False"


def test_other_users_of_nats_and_aiohttp_notice_nothing() -> None:
    """They find aiohttp before, meanwhile in another thread, and afterwards."""
    program = """
import sys, threading

def hear(event, arguments):
    if event == "import" and arguments[0] == "nats.aio.transport" and not found:
        other = threading.Thread(target=lambda: found.append(__import__("aiohttp").__name__))
        other.start()
        other.join()

found = []
sys.addaudithook(hear)
import sandstream_bus.nats
from nats.aio import transport
print(*found, transport.aiohttp.WSMsgType.BINARY.name, transport.multidict.CIMultiDict.__name__)
"""
    assert says(program) == "aiohttp BINARY CIMultiDict"
    assert says("import aiohttp, sandstream_bus.nats, nats.aio.transport as it\n"
                "print(it.aiohttp is aiohttp)") == "True"  # fmt: skip


def test_without_aiohttp_nats_says_what_is_missing(tmp_path: Path) -> None:
    for package in (nats, sandstream_bus):
        source = Path(package.__path__[0])
        (tmp_path / source.name).symlink_to(source)
    program = """
import sandstream_bus.nats
from nats.aio.transport import WebSocketTransport
try:
    WebSocketTransport()
except ImportError as error:
    print(error)
"""
    said = says(program, "-S", PYTHONPATH=str(tmp_path))
    assert "please install it with `pip install aiohttp`" in said


def test_a_websocket_carries_messages(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, config='websocket { listen: "127.0.0.1:-1", no_tls: true }')
    server.start()
    try:
        [ports] = (tmp_path / "ports").glob("*.ports")
        [url] = json.loads(ports.read_text())["websocket"]
        program = f"""
import asyncio, sys
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.connection import Connection

async def main():
    before = "aiohttp" in sys.modules
    connection = await Connection.open(ConnectOptions(servers=[{url!r}]))
    answer = await connection.request("$JS.API.INFO", b"")
    print(before, "aiohttp" in sys.modules, b"api" in answer.data)
    await connection.close()

asyncio.run(main())
"""
        assert says(program) == "False True True"
    finally:
        server.kill()
