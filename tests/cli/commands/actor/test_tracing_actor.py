"""``sandstream actor tracing`` and the one that ``up`` starts: what it says, does, and refuses."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest
from cli.cli_process import Cli, wait_until
from support.tracing.otlp_receiver import OtlpReceiver


def tracers_of(pid: int) -> list[int]:
    """The tracing processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(") ")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(stat[1]) == pid and b"actor\0tracing" in command and stat[0] != "Z":
                found.append(int(entry.name))
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


def stores(cli: Cli) -> list[Path]:
    return list((cli.home / "traces").glob("*.db"))


def status_of(store: Path, run: str) -> str:
    connection = sqlite3.connect(store)
    try:
        rows = connection.execute("SELECT status FROM runs WHERE run = ?", (run,)).fetchall()
    except sqlite3.OperationalError:  # its actor has made the file, but not all that is in it
        return ""
    finally:
        connection.close()
    return str(rows[0][0]) if rows else ""


def test_up_starts_one_that_keeps_traces_and_ends_with_it(cli: Cli, app: Path) -> None:
    with cli.service("up", str(app), "--no-sandbox") as up:
        (first,) = wait_until(lambda: tracers_of(up.pid), "a tracing actor")
        run = cli("submit", "assistant", "How is it?", "--wait", "--json").one["run_id"]
        (store,) = wait_until(lambda: stores(cli), "a store")
        wait_until(lambda: status_of(store, run) == "completed", "its trace")
        assert os.getpriority(os.PRIO_PROCESS, first) == 10, "who works goes first"
        told = [json.loads(line) for line in cli("doctor", "--json").out.splitlines()]
        found = {check["name"]: check for check in told}
        assert found["tracing"]["found"] == "live in group main"
        assert found["traces"]["found"].startswith("1 run, ")
        assert "nowhere, without contents" in found["export"]["found"]
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: is_gone(first), "the end of the actor")
        (second,) = wait_until(lambda: tracers_of(up.pid), "another one")
        up.kill()  # -9: nobody tells the actor
        wait_until(lambda: is_gone(second), "the end of the second one")


def test_up_stops_it_and_starts_none_if_told_so(cli: Cli) -> None:
    with cli.service("up", "--no-sandbox") as up:
        found = wait_until(lambda: tracers_of(up.pid), "a tracing actor")
    assert all(is_gone(pid) for pid in found)
    with cli.service("up", "--no-sandbox", "--no-tracing", "--replicas", "2") as up:
        wait_until(lambda: Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text(), "a replica")
        assert tracers_of(up.pid) == []


def test_it_says_where_it_keeps_and_exports_what(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "my.db"
    (tmp_path / "privacy.py").write_text("def redact(name, value, span):\n    return value\n")
    with OtlpReceiver() as receiver:
        cli.env |= receiver.environment() | {
            "PYTHONPATH": str(tmp_path),
            "SANDSTREAM_TRACE_REDACT": "privacy:redact",
            "OTEL_METRICS_EXPORTER": "prometheus",
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
        }
        flags = ("--group", "mine", "--store", str(store), "--content", "--only-new")
        with cli.service("actor", "tracing", *flags) as actor:
            assert actor.ready["group"] == "mine"
            said = actor.ready["tracing"]
            assert said["store"] == str(store) and store.exists()
            assert said["export"] == f"otlp (http/protobuf, {receiver.url})"
            assert said["metrics"].startswith("prometheus (http://127.0.0.1:")
            assert said["contents"] == "exported, redacted by privacy:redact"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "none (OTEL_EXPORTER_OTLP_ENDPOINT is not set)"),
        ({"OTEL_TRACES_EXPORTER": "none"}, "none (OTEL_TRACES_EXPORTER says so)"),
        ({"OTEL_SDK_DISABLED": "true"}, "none (OTEL_SDK_DISABLED is set)"),
    ],
    ids=["no-endpoint", "no-exporter", "disabled"],
)
def test_it_says_why_nothing_is_exported(cli: Cli, env: dict[str, str], said: str) -> None:
    if env:
        cli.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        cli.env |= {"OTEL_METRICS_EXPORTER": "none"} | env
    with cli.service("actor", "tracing") as actor:
        assert actor.ready["tracing"]["export"] == said


@pytest.mark.parametrize(
    ("flags", "env", "text"),
    [
        (["--group", "a.b"], {}, "the group 'a.b' cannot be part of a subject"),
        (["--redact", "nowhere:f"], {}, "'nowhere' of the redaction hook cannot be imported"),
        (["--pool", "main"], {}, "--pool is for `sandstream actor harness`"),
        ([], {"OTEL_TRACES_EXPORTER": "pigeon"}, "OTEL_TRACES_EXPORTER='pigeon'"),
        ([], {"OTEL_TRACES_SAMPLER": "some"}, "OTEL_TRACES_SAMPLER='some'"),
        (
            [],
            {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "perhaps"},
            "CAPTURE_MESSAGE_CONTENT='perhaps': allowed is true or false",
        ),
    ],
    ids=["group", "hook", "pool", "exporter", "sampler", "contents"],
)
def test_what_makes_no_sense_is_said_before_anything_starts(
    cli: Cli, flags: list[str], env: dict[str, str], text: str
) -> None:
    cli.env |= env
    done = cli.here("actor", "tracing", *flags)
    assert done.code == 2 and text in done.err
    assert not cli.home.exists()
    if env:
        done = cli.here("up", "--no-sandbox")
        assert done.code == 2 and text in done.err


def test_flags_of_tracing_are_for_tracing(cli: Cli) -> None:
    done = cli.here("actor", "harness", "--only-new")
    assert done.code == 2 and "--only-new is for `sandstream actor tracing`" in done.err


def test_a_store_that_cannot_be_made(cli: Cli) -> None:
    done = cli("actor", "tracing", "--store", "/proc/nowhere/t.db")
    assert done.code == 1
    assert "the trace store /proc/nowhere/t.db cannot be made" in done.err


def test_a_store_that_is_something_else_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    mine = tmp_path / "app.py"
    mine.write_text("print('a program of mine')\n")
    done = cli("actor", "tracing", "--store", str(mine))
    assert done.code == 2 and f"{mine} exists and is not a trace store" in done.err
    assert mine.read_text() == "print('a program of mine')\n"
    assert list(tmp_path.glob("app.py*")) == [mine]
    done = cli("actor", "tracing", "--store", str(tmp_path))
    assert done.code == 2 and f"{tmp_path} is a directory" in done.err


def test_doctor_names_the_group_that_nobody_reads_for(cli: Cli, tmp_path: Path, app: Path) -> None:
    with cli.service("up", "--no-sandbox", "--no-tracing", str(app)):
        flags = ("--group", "left", "--store", str(tmp_path / "left.db"))
        with cli.service("actor", "tracing", *flags):
            pass
        assert cli("submit", "assistant", "How is it?", "--wait").code == 0
        found = {check["name"]: check for check in cli("doctor", "--json").lines}["tracing"]
    assert found["state"] == "warning" and " in group left" in found["found"]
    assert "sandstream actor tracing --group left" in found["todo"]
    assert "nats consumer rm SANDSTREAM_LOG tracing-left" in found["todo"]
