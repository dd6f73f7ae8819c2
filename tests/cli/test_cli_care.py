"""``parked`` and ``doctor``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cli_process import Cli, wait_until
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
    assert redriven.code == 0 and redriven.one["sequence"] > 0
    again = str(wait_until(find, "the task that was parked again")[0]["id"])
    assert again != entry
    assert served("parked", "drop", again).code == 0
    assert find() == []
    gone = served("parked", "drop", again)
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
        "python packages model nats-server home disk sandboxes server nats version jetstream "
        "streams harness agents parked"
    )
    assert set(names.split()) <= set(checks)
    problems = [check for check in done.lines if check["state"] == "problem"]
    assert (done.code, problems) == (0, [])
    assert "pool main" in checks["harness"]["found"]
    assert "assistant" in checks["agents"]["found"]
    assert "sk-very-secret" not in done.out + done.err


def test_doctor_before_the_first_use(cli: Cli) -> None:
    done = cli("doctor", env={"OPENAI_API_KEY": ""})
    assert done.code == 0
    assert "not running" in done.out and "will be made on first use" in done.out
    assert "OPENAI_API_KEY is not set" in done.out
    assert not cli.home.exists()


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
    assert done.code == 0
    assert checks["streams"]["state"] == "warning"
    assert "2.12" in checks["version"]["found"]
