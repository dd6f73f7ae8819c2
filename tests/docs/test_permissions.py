"""The permissions that operations.md gives are enough for each role, and forbid the rest."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from support.nats_server import NatsServer

from sandstream.testing import ScriptedModel, text

ROOT = Path(__file__).parents[2]
ROW = re.compile(
    r"^\| (submit|follow|cancel|approve|send|trace|consolidate|be an actor) \| (.+) \|$",
    re.MULTILINE,
)
USERS = ("submit", "follow", "cancel", "approve", "send", "trace", "consolidate")
pytestmark = pytest.mark.timeout(90)


def _roles() -> dict[str, dict[str, list[str]]]:
    """The table of the page: what each role may publish and subscribe to."""
    roles: dict[str, dict[str, list[str]]] = {}
    for role, cell in ROW.findall((ROOT / "docs" / "operations.md").read_text()):
        may: dict[str, list[str]] = {"publish": [], "subscribe": []}
        for part in cell.split(";"):
            verb = "subscribe" if "subscribe" in part else "publish"
            may[verb] += [s.replace("<agent>", "*") for s in re.findall(r"`([^`]+)`", part)]
        roles[role] = may
    return roles


def _config() -> str:
    users = [
        {
            "user": role.split()[-1],
            "password": "pw",
            "permissions": {
                "publish": {"allow": may["publish"]},
                "subscribe": {"allow": [*may["subscribe"], "_INBOX.>"]},
            },
        }
        for role, may in _roles().items()
    ]
    return f"authorization {{ users: {json.dumps(users)} }}"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server with these users, and an actor that works on it with its own."""
    server = NatsServer(tmp_path / "nats", config=_config())
    server.start()
    address = f"127.0.0.1:{server.port}"
    (tmp_path / "app.py").write_text('from sandstream import Agent\na = Agent(name="weather")\n')
    with ScriptedModel([text("Hello.").forever()]) as model:
        process = subprocess.Popen(
            [sys.executable, "-m", "sandstream.cli", "up", "app.py", "--json"],
            cwd=tmp_path,
            env=os.environ
            | {
                "NATS_URL": f"nats://{address}",
                "NATS_USER": "actor",
                "NATS_PASSWORD": "pw",
                "OPENAI_BASE_URL": model.base_url,
                "OPENAI_API_KEY": "not-needed",
            },
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the actor could not start with its permissions"
            yield address
        finally:
            process.kill()
            process.wait(timeout=10)
            assert process.stdout is not None
            process.stdout.close()
            server.kill()


def test_each_role_can_do_its_part_and_no_more(url: str) -> None:
    assert set(_roles()) == {*USERS, "be an actor"}
    asyncio.run(_try_all(url))


async def _try_all(url: str) -> None:
    refused: list[str] = []

    async def remember(error: Exception) -> None:
        refused.append(str(error))

    async def connect(user: str) -> nats.NATS:
        return await nats.connect(f"nats://{user}:pw@{url}", error_cb=remember)

    everybody = [await connect(user) for user in USERS]
    submitter, follower, canceller, approver, sender, tracer, consolidator = everybody
    try:
        done = await follower.subscribe("sandstream.live.r-1.done")
        await follower.flush()
        ack = await submitter.request(
            "sandstream.task.weather", b'{"input":"Hi."}', timeout=5, headers={"Nats-Msg-Id": "r-1"}
        )
        assert json.loads(ack.data)["seq"]
        end = await done.next_msg(timeout=20)
        assert json.loads(end.data)["output"] == "Hello."
        subject = "$JS.API.DIRECT.GET.SANDSTREAM_LOG"
        last = await follower.request(f"{subject}.sandstream.run.r-1.done", b"", timeout=5)
        assert last.data == end.data
        query = {"seq": 1, "next_by_subj": "sandstream.run.r-1.>", "batch": 1}
        first = await follower.request(subject, json.dumps(query).encode(), timeout=5)
        assert b"run.started" in first.data
        await canceller.publish("sandstream.run.r-1.cancel", b'{"type":"cancel.requested"}')
        decided = b'{"type":"approval.decided","call":"t1-0","approve":true}'
        await approver.publish("sandstream.run.r-1.approval.decided", decided)
        await sender.publish("sandstream.run.r-1.input", b'{"type":"input.staged","input":"x"}')
        spans = {"type": "spans.reported", "trace_id": "a" * 32, "spans": []}
        await tracer.publish(f"sandstream.trace.{'a' * 32}.spans", json.dumps(spans).encode())
        merge = b'{"type":"memory.merge","reason":"asked"}'
        await consolidator.publish("sandstream.memory.alice.merge", merge)
        for connection in everybody:
            await connection.flush()
        assert refused == []
        await submitter.publish("sandstream.run.r-1.done", b"{}")
        await follower.publish("sandstream.task.weather", b"{}")
        await canceller.publish("sandstream.run.r-1.result.main", b"{}")
        await approver.publish("sandstream.run.r-1.cancel", b"{}")
        await sender.publish("sandstream.run.r-1.approval.decided", b"{}")
        await tracer.publish("sandstream.trace.r-1.exported.main", b'{"type":"spans.exported"}')
        await consolidator.publish("sandstream.memory.alice.state", b"{}")
        for connection in everybody:
            await connection.flush()
        assert len(refused) == len(USERS)
        assert all("permissions violation" in each for each in refused)
    finally:
        for connection in everybody:
            await connection.close()
