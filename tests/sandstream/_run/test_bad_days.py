"""Servers that are down, go away or are full: the caller hears of it, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandstream_bus.errors import BusUnavailable, StoreFull
from support.nats_server import NatsServer

import sandstream._run.call as run_call
from sandstream import Agent, RunConfig, Runner, function_tool
from sandstream.testing import ScriptedModel, text, tool_call

SMALL_ACCOUNT = """
accounts { small: {
  jetstream: { max_file: 3MB, max_mem: 1MB, max_streams: 10 },
  users: [ { user: u, password: p } ]
} }
no_auth_user: u
"""


@pytest.fixture
def small_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsServer]:
    """A server whose account may store three megabytes."""
    server = NatsServer(tmp_path / "nats", config=SMALL_ACCOUNT)
    server.start()
    server.set_up()
    monkeypatch.setenv("NATS_URL", server.url)
    yield server
    server.kill()


def test_no_server_at_start_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    with pytest.raises(BusUnavailable, match=r"cannot connect to NATS at nats://127\.0\.0\.1:1"):
        asyncio.run(Runner.run(Agent(name="a", model="m"), "hi"))


def test_a_full_store_is_told_to_the_caller_and_the_run_goes_on_when_there_is_room(
    small_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_call, "FULL_PATIENCE_S", 0.5)
    runs: list[str] = []

    @function_tool
    def big() -> str:
        runs.append("big")
        return os.urandom(2_000_000).hex()

    agent = Agent(name="full", tools=[big], model="gpt-4.1")
    config = RunConfig(run_key="full-1")

    async def main() -> None:
        async with ScriptedModel([tool_call("big", {}), text("there was room")]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            with pytest.raises(StoreFull, match="Free disk space or raise the limit"):
                await Runner.run(agent, "hi", run_config=config)
            await asyncio.to_thread(_raise_limit, small_server)
            result = await Runner.run(agent, "hi", run_config=config)
            assert result.final_output == "there was room"
            assert runs == ["big"]

    asyncio.run(main())


def _raise_limit(server: NatsServer) -> None:
    """More room for the account: a reload of the server's configuration."""
    import signal

    config = server._directory / "nats.conf"
    config.write_text(config.read_text().replace("max_file: 3MB", "max_file: 300MB"))
    os.kill(server.pid, signal.SIGHUP)


def test_a_server_that_stays_away_is_told_to_the_caller(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nats_server.set_up()
    monkeypatch.setenv("NATS_URL", nats_server.url)
    monkeypatch.setattr(run_call, "OUTAGE_PATIENCE_S", 0.5)
    killed = asyncio.Event()

    @function_tool
    async def loses_its_server() -> str:
        nats_server.kill()
        killed.set()
        return "ok"

    agent = Agent(name="lost", tools=[loses_its_server], model="gpt-4.1")

    async def main() -> None:
        async with ScriptedModel([tool_call("loses_its_server", {}), text("back")]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            config = RunConfig(run_key="lost-1")
            with pytest.raises(BusUnavailable, match="does not come back"):
                await Runner.run(agent, "hi", run_config=config)
            assert killed.is_set()
            await asyncio.to_thread(nats_server.start)
            result = await Runner.run(agent, "hi", run_config=config)
            assert result.final_output == "back"

    asyncio.run(main())
