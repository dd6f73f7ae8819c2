"""``sandstream actor memory`` and the one that ``up`` starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cli.cli_process import Cli, wait_until
from support.nats_server import NatsServer

from sandstream.client import Client
from sandstream.settings import Settings


def memory_check(cli: Cli) -> Any:
    lines = cli.here("doctor", "--json").lines
    return next(check for check in lines if check["name"] == "memory")


def test_an_actor_serves_memories_until_it_is_stopped(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    cli = Cli(tmp_path / "home", "http://127.0.0.1:9")
    nats_server.set_up()
    cli.env["NATS_URL"] = nats_server.url
    with cli.service("actor", "memory", "--node", "n1", "--concurrency", "4") as actor:
        assert actor.ready["memory"] == {"consolidates": "local, node n1"}
        assert memory_check(cli)["found"] == "an actor is live; nothing waits"
    assert "no actor is live" in memory_check(cli)["found"]


def test_up_has_one(served: Cli) -> None:
    async def is_served() -> bool:
        async with await Client.connect(Settings.from_env(served.env)) as client:
            return await client.bus.presence.is_served("memory")

    wait_until(lambda: asyncio.run(is_served()), "a memory actor of up")


def test_options_of_other_actors_are_refused(cli: Cli) -> None:
    for arguments, kind in {
        ("memory", "--pool", "x"): "`sandstream actor harness`",
        ("harness", "--node", "x"): "`sandstream actor memory`",
        ("harness", "--provider", "x"): "`sandstream actor sandbox` and `sandstream actor memory`",
        ("memory", "--provider", "x"): "no sandbox provider 'x'",
    }.items():
        done = cli.here("actor", *arguments)
        assert done.code == 2 and kind in done.err
