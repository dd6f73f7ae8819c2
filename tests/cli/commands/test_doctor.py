"""``doctor``."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.cli_process import Cli, publish
from support.nats_server import NatsServer


def test_doctor_of_a_served_installation(served: Cli) -> None:
    done = served("doctor", "--json")
    checks = {check["name"]: check for check in done.lines}
    names = (
        "python packages model nats-server home disk sandboxes limits server nats version "
        "jetstream streams sync retention replicas harness agents parked"
    )
    assert set(names.split()) <= set(checks)
    problems = [check for check in done.lines if check["state"] == "problem"]
    assert (done.code, problems) == (0, [])
    assert checks["sync"]["found"].endswith(
        "each 1 s; a power loss can lose that much acknowledged data"
    )
    assert checks["retention"]["found"] == "1 replica, 30 days, no limit of size"
    assert "pool main" in checks["harness"]["found"]
    assert "assistant" in checks["agents"]["found"]
    assert "sk-very-secret" not in done.out + done.err


def test_doctor_before_the_first_use(cli: Cli) -> None:
    done = cli("doctor", env={"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""})
    assert done.code == 0
    assert "not running" in done.out and "will be created on first use" in done.out
    assert "OPENAI_API_KEY is not set" in done.out
    assert not cli.home.exists()


@pytest.mark.parametrize(
    ("env", "state", "found"),
    [
        ({"OPENAI_BASE_URL": "http://u:pw@127.0.0.1:1/v1"}, "ok", "base URL http://127.0.0.1:1/v1"),
        ({"OPENAI_BASE_URL": "https://api.openai.com/v1"}, "warning", "OPENAI_API_KEY is not set"),
        ({"OPENAI_BASE_URL": ""}, "warning", "OPENAI_API_KEY is not set"),
        ({"SANDSTREAM_ROUTE_X_BASE_URL": "http://127.0.0.1:1"}, "ok", "; 1 other route"),
        ({"SANDSTREAM_ROUTE_X_API_KEY": "k"}, "problem", "a model route"),
    ],
)
def test_doctor_on_the_key_of_the_model(
    cli: Cli, env: dict[str, str], state: str, found: str
) -> None:
    done = cli("doctor", "--json", env={"OPENAI_API_KEY": "", **env})
    checks = {check["name"]: check for check in done.lines}
    assert checks["model"]["state"] == state and found in checks["model"]["found"]
    assert "pw" not in done.out


def test_doctor_refuses_an_isolation_that_does_not_exist(cli: Cli) -> None:
    done = cli("doctor", "--json", env={"SANDSTREAM_LOCAL_ISOLATION": "some"})
    checks = {check["name"]: check for check in done.lines}
    assert done.code == 1 and checks["sandboxes"]["state"] == "problem"


def test_doctor_counts_what_waits(cli: Cli) -> None:
    with cli.service("actor", "harness"):
        pass
    publish(cli, "sandstream.task.assistant", b'{"input":"hi"}', "waits-1")
    checks = {check["name"]: check for check in cli("doctor", "--json").lines}
    assert checks["harness"]["found"] == "none is live, 1 message waits"
    publish(cli, "sandstream.task.assistant", b'{"input":"hi"}', "waits-2")
    checks = {check["name"]: check for check in cli("doctor", "--json").lines}
    assert checks["harness"]["found"] == "none is live, 2 messages wait"


def test_doctor_finds_problems(cli: Cli, tmp_path: Path) -> None:
    unreachable = cli("doctor", "--nats-url", "nats://127.0.0.1:1", "--json")
    assert unreachable.code == 1
    assert unreachable.lines[-1]["name"] == "nats" and unreachable.lines[-1]["todo"]
    file = tmp_path / "file"
    file.write_text("")
    assert cli("doctor", "--home", str(file / "home")).code == 1


@pytest.mark.usefixtures("tmp_path")
def test_doctor_of_an_empty_server(cli: Cli, nats_server: NatsServer) -> None:
    done = cli("doctor", "--nats-url", nats_server.url, "--json")
    checks = {check["name"]: check for check in done.lines}
    assert done.code == 1
    assert checks["streams"]["state"] == "problem"
    assert checks["streams"]["todo"] == "create them: sandstream setup"
    assert "2.12" in checks["version"]["found"]
