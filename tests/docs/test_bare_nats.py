"""Any NATS client can take part: a process with nothing of ours gives tasks and gets results.

Harness and worker run as users run them, by the command line, in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.nats_server import NatsServer

from sandstream.testing import ScriptedModel, script_for, text, tool_call

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(120)  # four processes start, on a machine that may be busy

APP = '''
from sandstream import Agent, function_tool

@function_tool
def get_weather(city: str) -> str:
    """Look up the weather of a city."""
    return f"8 degrees in {city}"

weather = Agent(name="weather", instructions="Use your tools.", tools=[get_weather])
analyst = Agent(name="Data Analyst")
'''


class System:
    """A server, a harness, a worker, and the bare client."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(HERE / "bare_client.py"), self.url, action, json.dumps(arguments)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One for all tests of this file: each has runs of its own, and starting takes seconds."""
    directory = tmp_path_factory.mktemp("bare")
    (directory / "app.py").write_text(APP)
    nats_server = NatsServer(directory / "nats")
    nats_server.start()
    nats_server.set_up()
    conversations = [
        script_for("Oslo", [tool_call("get_weather", {"city": "Oslo"}), text("Cold.")]),
        script_for("numbers", [text("42")]),
        script_for("for ever", [text("Too late.").after(60)]),
    ]
    with ScriptedModel(conversations=conversations, strict=False) as model:
        environment = os.environ | {
            "NATS_URL": nats_server.url,
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "not-needed",
        }
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "sandstream.cli", *command, "--json"],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
            )
            for command in (["actor", "harness"], ["worker", "app.py"])
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline(), "ended before it was ready"
            yield System(nats_server.url)
        finally:
            for process in processes:
                process.kill()
                process.wait(timeout=10)
                assert process.stdout is not None
                process.stdout.close()
            nats_server.kill()


def _kinds(answer: dict[str, Any]) -> list[str]:
    return [event["subject"].split(".")[3] for event in answer["events"]]


def test_a_task_is_one_publish_and_its_run_can_be_followed_and_read_back(system: System) -> None:
    followed = system.ask("submit", agent="weather", body='{"input": "How is Oslo?"}')
    assert followed["run"].startswith("task-")
    assert _kinds(followed) == ["start", "model", "call", "result", "model", "done"]
    assert followed["events"][3]["body"]["output"] == "8 degrees in Oslo"
    assert followed["events"][-1]["body"]["status"] == "completed"
    assert followed["events"][-1]["body"]["output"] == "Cold."
    stored = system.ask("read", run=followed["run"])
    assert [event["body"] for event in stored["events"]] == [
        event["body"] for event in followed["events"]
    ]


def test_the_same_message_id_is_the_same_run(system: System) -> None:
    task = '{"input": "How is Oslo?"}'
    first = system.ask("submit", agent="weather", body=task, key="oslo-1")
    again = system.ask("submit", agent="weather", body=task, key="oslo-1")
    assert first["run"] == "oslo-1"
    assert not first["duplicate"]
    assert again["duplicate"]
    assert len(system.ask("read", run="oslo-1")["events"]) == len(first["events"])


def test_names_are_escaped_and_items_and_options_are_taken(system: System) -> None:
    task = {"input": [{"role": "user", "content": "The numbers?"}], "max_turns": 1}
    followed = system.ask("submit", agent="Data=20Analyst", body=json.dumps(task))
    assert followed["events"][0]["body"]["options"]["max_turns"] == 1
    assert followed["events"][-1]["body"]["agent"] == "Data Analyst"
    assert followed["events"][-1]["body"]["output"] == "42"


def test_deltas_come_with_a_streamed_task(system: System) -> None:
    task = '{"input": "How is Oslo?", "stream": true}'
    followed = system.ask("submit", agent="weather", body=task)
    deltas = [e["body"]["event"] for e in followed["events"] if e["subject"].endswith(".delta")]
    texts = [delta["delta"] for delta in deltas if delta["type"] == "response.output_text.delta"]
    assert "".join(texts) == "Cold."


@pytest.mark.parametrize(
    ("agent", "body", "code"),
    [
        ("nobody", '{"input": "Hello?"}', "unknown_agent"),
        ("weather", '{"inputs": "Hello?"}', "parked"),
        ("weather", "not JSON", "parked"),
    ],
)
def test_a_bad_task_ends_with_a_reason(system: System, agent: str, body: str, code: str) -> None:
    followed = system.ask("submit", agent=agent, body=body)
    assert _kinds(followed) == ["done"]
    assert followed["events"][0]["body"]["status"] == "failed"
    assert followed["events"][0]["body"]["error"]["code"] == code


@pytest.mark.parametrize("user", ["shared", "alice"])
def test_cancel(system: System, user: str) -> None:
    task = '{"input": "Talk for ever."}'
    answer = system.ask("cancel", agent="weather", body=task, key="long-1", user=user)
    assert answer["done"]["status"] == "cancelled"


def test_the_runs_of_a_user_begin_with_the_name(system: System) -> None:
    task = '{"input": "How is Oslo?"}'
    for user in ("alice", "bob"):
        followed = system.ask("submit", agent="weather", body=task, key="mine", user=user)
        assert followed["run"] == f"{user}=mine"
        assert followed["events"][-1]["body"]["output"] == "Cold."
    unnamed = system.ask("submit", agent="weather", body=task, user="alice")
    assert unnamed["run"].startswith("alice=task-")
