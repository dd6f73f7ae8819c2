"""kill -9 of each kind of actor in the middle of its work: every view tells the same of it."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli.cli_process import CODER, Cli, Service, wait_until
from sandstream_actors.tracing import semconv
from support.nats_server import NatsServer
from support.tracing.otlp_receiver import OtlpReceiver

from sandstream.testing import ScriptedModel, script_for, text, tool_call

APP = '''
from sandstream import Agent, function_tool

@function_tool
async def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is fine"

@function_tool(delivery="at_most_once")
async def pay(cents: int) -> str:
    """Pay, once."""
    return "paid"

clerk = Agent(name="clerk", instructions="Work.", tools=[look, pay], model="gpt-5")
'''
SCRIPTS = [
    script_for("look", [tool_call("look", {"city": "Bern"}), text("Fine.")]),
    script_for("pay", [tool_call("pay", {"cents": 5}), text("Perhaps.")]),
    script_for("write", [tool_call("exec_command", {"cmd": "echo hello"}), text("Written.")]),
]


class Case(NamedTuple):
    """Who is killed where, and whose row shows it."""

    kind: str
    point: str
    agent: str = "clerk"
    task: str = "look"
    operation: str = "tool"
    label: str = "look"
    names_the_lost: bool = False

    @property
    def name(self) -> str:
        return self.point


CASES = [
    Case("harness", "harness.before_model", operation="chat", label="chat gpt-5"),
    Case("harness", "harness.before_commit", operation="chat", label="chat gpt-5"),
    Case("worker", "tools.before_invoke"),
    Case("worker", "tools.after_invoke"),
    Case("worker", "tools.started", task="pay", label="pay", names_the_lost=True),
    Case("sandbox", "sandbox.before_result:2", "coder", "write", label="exec_command"),
]


class Fleet:
    """One process of each kind on a server, each with a pid of its own."""

    def __init__(self, cli: Cli, directory: Path, stack: contextlib.ExitStack) -> None:
        self.cli = cli
        self._stack = stack
        self._files = {"clerk": directory / "clerk.py", "coder": directory / "coder.py"}
        self._files["clerk"].write_text(APP)
        self._files["coder"].write_text(CODER)

    def start(self, kind: str, agent: str, crash_at: str = "") -> Service:
        cli = copy.copy(self.cli)
        cli.env = cli.env | ({"SANDSTREAM_CRASH_AT": crash_at} if crash_at else {})
        if kind == "worker":
            return self._stack.enter_context(cli.service("worker", str(self._files[agent])))
        return self._stack.enter_context(cli.service("actor", kind))


@pytest.fixture
def fleet(tmp_path: Path, nats_server: NatsServer) -> Iterator[Fleet]:
    nats_server.set_up()
    with (
        ScriptedModel(conversations=SCRIPTS, strict=False) as model,
        contextlib.ExitStack() as stack,
    ):
        cli = Cli(tmp_path / "home", model.base_url)
        cli.env["NATS_URL"] = nats_server.url
        yield Fleet(cli, tmp_path, stack)


def run_with_kill(fleet: Fleet, case: Case) -> tuple[str, Service, Service]:
    """A run whose actor was killed at a point and replaced by another one."""
    kinds = ["harness", "worker", *(["sandbox"] if case.agent == "coder" else [])]
    for kind in (it for it in kinds if it != case.kind):
        fleet.start(kind, case.agent)
    victim = fleet.start(case.kind, case.agent, case.point)
    run: str = fleet.cli.here("submit", case.agent, case.task, "--json").one["run_id"]
    assert wait_until(lambda: victim.process.poll() is not None, "the kill")
    successor = fleet.start(case.kind, case.agent)
    done = fleet.cli("watch", run)
    assert done.code == 0, done
    return run, victim, successor


def shown(cli: Cli, *arguments: str, columns: int) -> str:
    wide = copy.copy(cli)
    wide.env = cli.env | {"COLUMNS": str(columns)}
    done = wide.here(*arguments)
    assert done.code == 0, done
    lines = [line for line in done.out.splitlines() if not line.startswith("sandbox ")]
    longest = max(map(len, lines))  # how to get a sandbox's files is for copying, and never cut
    assert longest <= columns, f"{longest} columns of {columns}"
    return done.out


def page_rows(cli: Cli, run: str, tmp_path: Path) -> tuple[str, list[dict[str, Any]]]:
    target = tmp_path / "run.html"
    assert cli.here("show", run, "--html", str(target)).code == 0
    page = target.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return page, json.loads(found[1])["rows"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_kill_is_one_takeover_in_every_view(fleet: Fleet, case: Case, tmp_path: Path) -> None:
    run, victim, successor = run_with_kill(fleet, case)
    cli = fleet.cli
    host = re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname())[:40]
    by, lost = f"{host}:{successor.pid}", f"{host}:{victim.pid}"

    # show --json
    told = cli.here("show", run, "--json").one
    assert (told["takeovers"], told["retries"], told["summary"]["takeovers"]) == (1, 0, 1)
    rows = [it for it in told["spans"] if it.get("takeovers") and not it.get("is_run")]
    assert [(it["label"], it["attempts"], it["takeovers"]) for it in rows] == [(case.label, 2, 1)]
    (row,) = rows
    assert row["worker"].startswith(f"{by}:")
    assert row.get("lost_worker", "").startswith(f"{lost}:" if case.names_the_lost else "")
    kinds = [part["kind"] for part in row["parts"]]
    assert kinds.count("lost") == 1, kinds
    lost_ns = sum(it["end_ns"] - it["start_ns"] for it in row["parts"] if it["kind"] == "lost")
    assert lost_ns == row["lost_ns"] > 2e9, "a lease is 5 s"
    queued = [it["end_ns"] - it["start_ns"] for it in row["parts"] if it["kind"] == "queued"]
    assert sum(queued) < lost_ns
    took = {it["worker"].rpartition(":")[0]: it for it in told["workers"]}
    assert took[by]["takeovers"] == 1
    assert sum(it["lost"] for it in told["workers"]) == 1
    others = {it["worker"] for it in told["spans"] if it.get("worker")}
    assert all(re.fullmatch(rf"{re.escape(host)}:\d+:[0-9a-f]+", it) for it in others)

    # show for people
    for columns in (80, 200):
        page = shown(cli, "show", run, columns=columns)
        assert "takeovers 1\n" in page and "retries" not in page
        assert "2 attempts" in page and "1 takeover" in page and "▒" in page
        assert f"{by}  " in page and "took over 1" in page and "1 attempt lost" in page
        line = next(it for it in page.splitlines() if "2 attempts" in it)
        assert str(successor.pid) in line, line
    plain = shown_in_ascii(cli, run)
    assert "2 attempts" in plain and "%" in plain and plain.isascii()

    # the page
    page, drawn = page_rows(cli, run, tmp_path)
    assert "<dt>Takeovers</dt><dd><bdi>1</bdi>" in page and "<dt>Retries</dt>" not in page
    assert by in page
    (drawn_row,) = (it for it in drawn if it.get("takeovers") and not it.get("is_run"))
    assert (drawn_row["attempts"], drawn_row["takeovers"]) == (2, 1)
    assert [it[0] for it in drawn_row["parts"]].count("lost") == 1

    # stats, and the store behind it
    stats = cli.here("stats", "--json").one
    assert (stats["total"]["takeovers"], stats["total"]["retries"]) == (1, 0)
    assert [(it["takeovers"], it["retries"]) for it in stats["agents"]] == [(1, 0)]
    calls = {it["name"]: it for it in [*stats["models"], *stats["tools"]]}
    hit = calls["gpt-5" if case.operation == "chat" else case.label]
    assert (hit["takeovers"], hit["attempts"]) == (1, hit["calls"] + 1)
    assert sum(it["takeovers"] for it in calls.values()) == 1
    for columns in (80, 200):
        assert "\n1 takeover\n" in shown(cli, "stats", columns=columns)
    (store,) = (cli.home / "traces").glob("*.db")
    with contextlib.closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT retries, takeovers FROM runs").fetchall() == [(0, 1)]
        spans = connection.execute(
            "SELECT attempts, takeovers FROM spans WHERE operation = ? AND takeovers > 0",
            (case.operation,),
        ).fetchall()
        assert spans == [(2, 1)]

    # watch, afterwards as at the time
    lines = cli.here("watch", run).out.splitlines()
    (over,) = (it for it in lines if it[10:17].strip() == "lost")
    assert f"attempt 2: {by} took over from " in over
    assert (lost in over) is case.names_the_lost
    events = cli.here("watch", run, "--json").lines
    assert {it["takeovers"] for it in events} == {0, 1}
    assert {it["worker"].rpartition(":")[0] for it in events if it["takeovers"]} == {by}


def test_the_live_views_tell_of_a_takeover(fleet: Fleet) -> None:
    lines, records = fleet.cli.start("watch"), fleet.cli.start("watch", "--json")
    run, _, _ = run_with_kill(fleet, Case("worker", "tools.before_invoke"))
    last = ""
    while not last.startswith(f"{run}  completed"):
        last = lines.stdout.readline()
    assert "  takeovers=1  " in last
    record: dict[str, Any] = {}
    while (record.get("run_id"), record.get("status")) != (run, "completed"):
        record = json.loads(records.stdout.readline())
    assert record["takeovers"] == 1
    for process in (lines, records):
        process.kill()
        process.communicate()


def shown_in_ascii(cli: Cli, run: str) -> str:
    ascii_only = {"PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    process = cli.start("show", run, env=ascii_only)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return str(out)


def test_a_harness_that_died_after_its_decision_is_a_takeover_of_the_run(fleet: Fleet) -> None:
    """The answer stands, so the model call was one attempt; what was lost came after it."""
    run, _, _ = run_with_kill(fleet, Case("harness", "harness.after_commit"))
    told = fleet.cli.here("show", run, "--json").one
    assert (told["takeovers"], told["retries"]) == (1, 0)
    assert all(it.get("attempts", 1) == 1 for it in told["spans"])
    run_row, chat = told["spans"][:2]
    assert (run_row["takeovers"], chat["label"]) == (1, "chat gpt-5")
    assert [it["kind"] for it in run_row["parts"]].count("lost") == 1
    assert [it["kind"] for it in chat["parts"]].count("lost") == 0
    victim, successor = (it for it in told["workers"] if it["lost"] or it["takeovers"])
    assert (victim["worker"], victim["lost"]) == (chat["worker"], 1)
    assert successor["takeovers"] == 1 and successor["worker"] != victim["worker"]
    stats = fleet.cli.here("stats", "--json").one
    assert stats["total"]["takeovers"] == 1


def test_a_backend_gets_the_same_numbers(fleet: Fleet) -> None:
    """Attributes of spans, and metrics."""
    with OtlpReceiver() as backend:
        cli = copy.copy(fleet.cli)
        cli.env = cli.env | backend.environment() | {"OTEL_METRIC_EXPORT_INTERVAL": "300"}
        with cli.service("actor", "tracing"):
            case = Case("worker", "tools.started", task="pay")
            _, victim, successor = run_with_kill(fleet, case)
            wait_until(lambda: backend.named("invoke_agent clerk"), "the run's span")
            wait_until(lambda: backend.named("execute_tool pay"), "the call's span")
    (tool,) = backend.named("execute_tool pay")
    assert (tool.attributes[semconv.ATTEMPTS], tool.attributes[semconv.TAKEOVERS]) == (2, 1)
    assert f":{successor.pid}:" in tool.attributes[semconv.WORKER]
    assert tool.attributes[semconv.LOST] > 2
    told = [it for span in backend.spans for it in span.events if it.name == semconv.TAKEOVER]
    assert [it.attributes[semconv.TAKEOVERS] for it in told] == [1]
    assert f":{victim.pid}:" in told[0].attributes[semconv.TAKEN_FROM]
    assert f":{successor.pid}:" in told[0].attributes[semconv.WORKER]
    latest = {it.name: it for it in backend.metrics}
    assert [it.value for it in latest[semconv.TAKEOVERS].points] == [1]
    assert [it.count for it in latest[semconv.LOST].points] == [1]
    assert semconv.RETRIES not in latest
