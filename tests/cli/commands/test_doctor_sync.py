"""``doctor`` says how often a NATS server syncs, or how to let it find out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import Cli
from support.nats_server import NatsServer


@pytest.fixture
def monitored(tmp_path: Path) -> Iterator[tuple[NatsServer, str]]:
    """A server with NATS's own defaults, and the address of its monitoring."""
    server = NatsServer(tmp_path / "nats", config="server_name: plain\nhttp: 127.0.0.1:-1")
    server.start()
    (ports,) = (tmp_path / "nats" / "ports").glob("*.ports")
    yield server, json.loads(ports.read_text())["monitoring"][0]
    server.kill()


def sync_of(cli: Cli, server: NatsServer, *options: str, **env: str) -> dict[str, Any]:
    done = cli("doctor", "--json", *options, env={"NATS_URL": server.url} | env)
    (found,) = (it for it in done.lines if it["name"] == "sync")
    return dict(found)


def test_the_default_of_nats_is_a_warning(cli: Cli, monitored: tuple[NatsServer, str]) -> None:
    server, url = monitored
    for found in (
        sync_of(cli, server, "--monitor", url),
        sync_of(cli, server, NATS_MONITOR_URL=url),
    ):
        assert found["state"] == "warning"
        assert found["found"].startswith("plain: each 2 min; a power loss can lose that much")
        assert "sync_interval" in found["todo"]


def test_without_monitoring_doctor_says_how_to_enable_it(cli: Cli, nats_server: NatsServer) -> None:
    found = sync_of(cli, nats_server)
    assert found["state"] == "warning" and found["found"].startswith("unknown")
    assert "NATS_MONITOR_URL" in found["todo"] and "http_port" in found["todo"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nats://127.0.0.1:4222", "nonsense"])
def test_a_monitoring_that_does_not_answer_is_a_problem(
    cli: Cli, nats_server: NatsServer, url: str
) -> None:
    found = sync_of(cli, nats_server, "--monitor", url)
    assert found["state"] == "problem" and url in found["found"]


def test_a_password_of_the_monitoring_is_not_shown(cli: Cli, nats_server: NatsServer) -> None:
    found = sync_of(cli, nats_server, "--monitor", "http://me:hidden@127.0.0.1:1")
    assert "hidden" not in str(found) and "127.0.0.1:1" in found["found"]
