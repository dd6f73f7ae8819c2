"""``parked`` and ``doctor``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cli.cli_process import Cli, wait_until
from support.nats_server import NatsServer

from sandstream.client import Client
from sandstream.settings import Settings


def _publish(cli: Cli, subject: str, data: bytes, msg_id: str) -> None:
    async def publish() -> None:
        async with await Client.connect(Settings.from_env(cli.env)) as client:
            await client.bus.connection.publish(subject, data, msg_id=msg_id)

    asyncio.run(publish())


def test_parked(served: Cli) -> None:
    _publish(served, "sandstream.task.assistant", b"{no task", "broken-task")

    def find() -> list[dict[str, object]]:
        lines = served("parked", "--json").lines
        return [one for one in lines if one["parked"]["body"] == "{no task"]

    entry = str(wait_until(find, "the parked task")[0]["id"])
    listed = served("parked", "ls")
    assert listed.out.startswith("ID ") and entry in listed.out and "redrive" in listed.err
    shown = served("parked", "show", entry)
    assert "message.undecodable" in shown.out and shown.out.endswith("{no task\n")
    redriven = served("parked", "redrive", entry, "--json")
    assert (redriven.code, redriven.out) == (1, "")
    assert "run broken-task would be refused again: the message is not valid JSON" in redriven.err
    assert [it["id"] for it in find()] == [entry]  # it is where it was
    assert served("parked", "drop", entry).code == 0
    assert find() == []
    gone = served("parked", "drop", entry)
    assert (gone.code, gone.out) == (3, "")


def test_an_unreadable_event_hides_no_run(served: Cli, finished: str) -> None:
    _publish(served, "sandstream.run.strange.done", b'{"type":"from.the.future"}', "strange")
    listed = served("runs", "--limit", "1000", "--json")
    assert listed.code == 0
    assert finished in {run["run_id"] for run in listed.lines}
    assert served("show", "strange").code == 3


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
    _publish(cli, "sandstream.task.assistant", b'{"input":"hi"}', "waits-1")
    checks = {check["name"]: check for check in cli("doctor", "--json").lines}
    assert checks["harness"]["found"] == "none is live, 1 message waits"
    _publish(cli, "sandstream.task.assistant", b'{"input":"hi"}', "waits-2")
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
