"""The command line of people outside: with the permissions of a user, and SANDSTREAM_USER."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nats_server import NatsServer
from support.servers.outsiders import guarded_server, outsider

from sandstream.testing import ScriptedModel, script_for, text, tool_call

pytestmark = pytest.mark.timeout(120)  # many processes start, on a machine that may be busy

APP = '''
from sandstream import Agent, function_tool

@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    """Give money back."""
    return f"refunded {amount}"

till = Agent(name="till", tools=[refund])
'''


class Users:
    """Commands of users on one server."""

    def __init__(self, server: NatsServer, directory: Path) -> None:
        self._server = server
        self._directory = directory

    def environment(self, name: str, **more: str) -> dict[str, str]:
        return os.environ | {
            "NATS_URL": self._server.url,
            "NATS_USER": name,
            "NATS_PASSWORD": "pw",
            "NATS_INBOX_PREFIX": f"_INBOX_{name}",
            "SANDSTREAM_HOME": str(self._directory / "home"),
            **more,
        }

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandstream.cli", *command],
            env=self.environment(name, SANDSTREAM_USER=name),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def ok(self, name: str, *command: str) -> str:
        done = self.run(name, *command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, name: str, *command: str) -> str:
        done = self.run(name, *command)
        assert done.returncode != 0, done.stdout
        assert "this is a bug" not in done.stderr
        return done.stderr


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    (tmp_path / "app.py").write_text(APP)
    steps = [tool_call("refund", {"amount": 12}), text("She has it.")]
    people = [outsider("alice"), outsider("bob")]
    with (
        guarded_server(tmp_path / "nats", people) as server,
        ScriptedModel(conversations=[script_for("Ann wants", steps)], strict=False) as model,
    ):
        found = Users(server, tmp_path)
        process = subprocess.Popen(
            [sys.executable, "-m", "sandstream.cli", "up", "app.py", "--json", "--no-sandbox"],
            cwd=tmp_path,
            env=found.environment("actor", OPENAI_BASE_URL=model.base_url, OPENAI_API_KEY="x"),
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "ended before it was ready"
            yield found
        finally:
            process.kill()
            process.wait(timeout=10)
            assert process.stdout is not None
            process.stdout.close()


def test_a_user_does_all_with_runs_of_their_own_and_nothing_with_others(users: Users) -> None:
    words = ("submit", "till", "Ann wants 12 euros back.", "--key")
    assert users.ok("alice", *words, "r1") == "alice=r1\n"
    users.ok("alice", *words, "r2")
    deadline = time.monotonic() + 30
    while len(users.ok("alice", "approvals", "--json").splitlines()) < 2:
        assert time.monotonic() < deadline, "the runs do not wait"
    for command in (("approve", "alice=r1"), ("cancel", "alice=r1"), ("send", "alice=r1", "x")):
        assert "belongs to the user alice, so bob may not send" in users.fails("bob", *command)
    users.ok("alice", "send", "alice=r1", "Be quick.", "--as", "carol")
    decision = json.loads(users.ok("alice", "approve", "alice=r1", "--json", "--as", "carol"))
    assert (decision["approve"], decision["by"]) == (True, "alice")
    watched = users.ok("alice", "watch", "alice=r1")
    assert "Be quick. (from alice)" in watched and "She has it." in watched
    assert "She has it." in users.ok("bob", "show", "alice=r1")  # reading is not divided
    assert users.ok("alice", "cancel", "alice=r2") == "cancelled\n"
    listed = [json.loads(line) for line in users.ok("alice", "runs", "--json").splitlines()]
    assert {it["run_id"]: it["status"] for it in listed} == {
        "alice=r1": "completed",
        "alice=r2": "cancelled",
    }


def test_what_a_user_may_not_do_is_named(users: Users) -> None:
    lacks = "this user lacks the permission"
    assert f"SANDSTREAM_PARKED: {lacks}" in users.fails("alice", "parked")
    assert f"SANDSTREAM_MEMORY: {lacks}" in users.fails("alice", "memory", "ls")
    assert f"SANDSTREAM_OPEN: {lacks}" in users.fails("alice", "runs", "--status", "running")
    task = ("submit", "till", "Ann wants 12 euros back.")
    assert f"ask.bob.task.till: {lacks}" in users.fails("alice", *task, "--user", "bob")
    assert "SANDSTREAM_USER: the user 'Al'" in users.fails("alice", *task, "--user", "Al")
    assert "there is no run 'alice=none'" in users.fails("alice", "show", "alice=none")
    users.ok("alice", "memory", "merge", "trips")
    refused = users.run("alice", "submit", "nobody", "Hello?", "--wait")
    assert refused.returncode == 1 and "no agent 'nobody' is registered" in refused.stderr
