"""The NATS configurations that we ship, with the real server: they keep what they promise."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.embedded.server_binary import find_server_binary
from sandstream_bus.errors import BusUnavailable
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import Retention, RetentionChoice
from sandstream_bus.nats.topology import ConsumerSpec, Topology
from sandstream_bus.setup.stream_plan import carry_out, make_plan
from sandstream_bus.wire.subjects import Subjects

from sandstream.cli.main import main as cli

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DEADLINE_S = 15.0


class Started:
    """A server of a shipped configuration."""

    def __init__(self, process: subprocess.Popen[bytes], ports: dict[str, list[str]]) -> None:
        self.process = process
        self.url = ports["nats"][0]
        self.monitor = ports["monitoring"][0]

    def asked(self, page: str) -> Any:
        with urllib.request.urlopen(f"{self.monitor}/{page}", timeout=5) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configurations with users, as somebody makes them."""
    directory = tmp_path_factory.mktemp("deploy")
    for conf in ("nats.conf", "nats-cluster.conf"):
        shutil.copy(DEPLOY / conf, directory / conf)
    assert cli(["setup", "--auth-dir", str(directory / "auth")]) == 0
    return directory


def admin(deploy: Path) -> dict[str, str]:
    lines = (deploy / "auth" / "admin.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def user(deploy: Path) -> dict[str, Any]:
    """The administrator, for a connection."""
    env = admin(deploy)
    return {
        "user": env["NATS_USER"],
        "password": env["NATS_PASSWORD"],
        "inbox_prefix": env["NATS_INBOX_PREFIX"],
    }


def environment(directory: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "NATS_STORE_DIR": str(directory / "store"), **more}


@contextmanager
def started(conf: Path, directory: Path, *options: str, **env: str) -> Iterator[Started]:
    """On any free ports, unless the options say more."""
    directory.mkdir()
    process = subprocess.Popen(
        [
            str(find_server_binary()),
            *("-c", str(conf), "-p", "-1", "-m", "-1"),
            *("--ports_file_dir", str(directory), "-l", str(directory / "log"), *options),
        ],
        env=environment(directory, **env),
    )
    try:
        yield Started(process, _ports(process, directory))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)


def _ports(process: subprocess.Popen[bytes], directory: Path) -> dict[str, list[str]]:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        for found in directory.glob("*.ports"):
            try:
                ports: dict[str, list[str]] = json.loads(found.read_text())
            except ValueError:
                continue  # not written to its end
            return ports
        time.sleep(0.01)
    raise AssertionError(f"nats-server did not start:\n{(directory / 'log').read_text()}")


def verdict(conf: Path, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(find_server_binary()), "-t", "-c", str(conf)],
        env=environment(tmp_path, **env),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def cluster_environment(number: int, routes: list[int]) -> dict[str, str]:
    urls = [f"nats://sandstream:r0utes@127.0.0.1:{port}" for port in routes]
    return {
        "NATS_NAME": f"n{number}",
        "NATS_HOST": "127.0.0.1",
        "NATS_ROUTE_PASSWORD": "r0utes",
        "NATS_ROUTES": json.dumps(urls),
    }


@pytest.mark.parametrize(
    ("conf", "env"),
    [("nats.conf", {}), ("nats-cluster.conf", cluster_environment(1, [6222, 6223, 6224]))],
)
def test_the_server_takes_it_and_wants_users(
    conf: str, env: dict[str, str], tmp_path: Path, deploy: Path
) -> None:
    assert verdict(deploy / conf, tmp_path, **env).returncode == 0
    shutil.copy(deploy / conf, tmp_path / conf)
    without = verdict(tmp_path / conf, tmp_path, **env)
    assert without.returncode != 0 and "auth.conf" in without.stderr


def test_one_server_keeps_what_the_docs_promise(
    tmp_path: Path,
    deploy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with started(deploy / "nats.conf", tmp_path / "nats") as server:
        said = server.asked("varz")
        assert said["host"] == "127.0.0.1" and said["http_host"] == "127.0.0.1"
        assert said["auth_required"] is True and said["max_payload"] == 1024**2
        assert said["server_name"] == "sandstream-nats"
        config = said["jetstream"]["config"]
        assert config["sync_always"] is True
        assert config["max_storage"] == 20 * 1024**3
        assert config["store_dir"].startswith(str(tmp_path))
        with pytest.raises(BusUnavailable, match="cannot connect"):
            asyncio.run(Connection.open(ConnectOptions(servers=[server.url])))
        monkeypatch.setenv("NATS_URL", server.url)
        for name, value in admin(deploy).items():
            monkeypatch.setenv(name, value)
        assert cli(["setup"]) == 0
        capsys.readouterr()
        cli(["doctor", "--json", "--monitor", server.monitor])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        checks = {it["name"]: it for it in lines}
        assert checks["sync"]["state"] == "ok"
        assert checks["sync"]["found"].startswith("sandstream-nats: always")
        assert checks["replicas"]["found"] == "1, on one server"


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for it in sockets:
            it.bind(("127.0.0.1", 0))
        return [int(it.getsockname()[1]) for it in sockets]


@contextmanager
def cluster(deploy: Path, directory: Path) -> Iterator[list[Started]]:
    routes = free_ports(3)
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                started(
                    deploy / "nats-cluster.conf",
                    directory / f"n{number}",
                    *("--cluster", f"nats://127.0.0.1:{port}"),
                    **cluster_environment(number, routes),
                )
            )
            for number, port in enumerate(routes)
        ]


@pytest.mark.timeout(60)  # three servers elect a leader, and each stream does
def test_a_cluster_with_three_replicas_that_no_reader_changes(
    tmp_path: Path,
    deploy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three replicas and 365 days stay so when a command comes with only NATS_URL set."""

    async def main(servers: list[Started]) -> None:
        options = ConnectOptions(servers=[it.url for it in servers], **user(deploy))
        connection = await Connection.open(options)
        topology, choice = Topology(Subjects()), RetentionChoice(replicas=3, max_age_days=365)
        await carry_out(connection, topology, choice, await make_plan(connection, topology, choice))
        await connection.close()
        bus = await Bus.open(options)
        assert bus.topology.retention == Retention(replicas=3, max_age_days=365)
        spec = ConsumerSpec(name="probe", filters=[bus.subjects.call("*", "p")])
        await bus.topology.ensure_consumer(bus.connection, spec)
        info = await bus.topology.consumer_info(bus.connection, "probe")
        assert info is not None and len(info["cluster"]["replicas"]) == 2  # beside the leader
        await bus.close()

    async def settings(servers: list[Started]) -> Retention:
        bus = await Bus.open(ConnectOptions(servers=[servers[0].url], **user(deploy)))
        await bus.close()
        return bus.topology.retention

    with cluster(deploy, tmp_path) as servers:
        asyncio.run(main(servers))
        monkeypatch.setenv("NATS_URL", ",".join(it.url for it in servers))
        for name, value in admin(deploy).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NATS_MONITOR_URL", ",".join(it.monitor for it in servers))
        assert cli(["runs"]) == 0
        capsys.readouterr()
        cli(["doctor", "--json"])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(it["found"][:10] for it in lines if it["name"] == "sync") == [
            *("n0: always", "n1: always", "n2: always"),
        ]
        (replicas,) = (it for it in lines if it["name"] == "replicas")
        assert replicas["found"] == "3, all current"
        assert asyncio.run(settings(servers)) == Retention(replicas=3, max_age_days=365)
        for gone in servers[1:]:
            gone.process.kill()
        assert cli(["doctor", "--json"]) == 1
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        (lost,) = (
            it for it in lines if it["name"] in ("jetstream", "streams") and it["state"] != "ok"
        )
        assert "majority" in lost["todo"]
