"""What is private stays private, through real processes: in the store's files, in what is exported
by OTLP and to the console, in the actor's own log, on the page and on the screen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from actors.tracing.privacy_program import LOOK, PLACES, key, word
from support.tracing.otlp_receiver import OtlpReceiver, Request

PROGRAM = Path(__file__).with_name("privacy_program.py")
DEADLINE_S = 40.0
HOOK = """
import re

def redact(name, value, span):
    if isinstance(value, list):
        return [redact(name, each, span) for each in value]
    return re.sub("(?i)PLANTED[-_][a-z]+", "[gone]", value) if isinstance(value, str) else value
"""
KEYS = [key(place) for place in PLACES]
WORDS = [word(place) for place in PLACES]
FAILURES = (
    *("failure", "modelerror", "told", "errordata", "path", "guardinfo", "guardword", "reason"),
)
SAID = [f"harmless-{it}" for it in ("prompt", "instructions", "arguments", "output", "answer")]


class Receiver(OtlpReceiver):
    """Keeps every byte that came."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    def take(self, message: Request, headers: dict[str, str]) -> int | None:
        self.bodies.append(message.SerializeToString())
        return super().take(message, headers)


@dataclass
class Traced:
    """What a tracing actor has left behind."""

    store: Path
    receiver: Receiver
    log: Path
    console: Path

    def in_store(self) -> bytes:
        files = sorted(self.store.parent.glob(f"{self.store.name}*"))
        return b"".join(it.read_bytes() for it in files)

    def everywhere(self) -> dict[str, bytes]:
        return {
            "store": self.in_store(),
            "otlp": b"".join(self.receiver.bodies),
            "console": self.console.read_bytes(),
            "log": self.log.read_bytes(),
        }

    def found(self, texts: list[str]) -> list[tuple[str, str]]:
        """Which of the texts are where."""
        return [
            (place, it)
            for place, data in self.everywhere().items()
            for it in texts
            if it.encode().lower() in data.lower()
        ]

    def is_done_with(self, runs: list[str]) -> bool:
        connection = sqlite3.connect(self.store)
        try:
            rows = connection.execute("SELECT run FROM runs WHERE is_over = 1").fetchall()
            ((waiting,),) = connection.execute("SELECT count(*) FROM outbox").fetchall()
        finally:
            connection.close()
        return {run for (run,) in rows} >= set(runs) and waiting == 0


@dataclass
class Scene:
    """Everything that the tests look at; it is made once."""

    environ: dict[str, str]
    runs: dict[str, str]
    open: Traced
    """With contents and a hook."""
    plain: Traced
    """Without both, as it is by default."""
    told: dict[str, Any]
    """What the program's own processor was told."""

    def cli(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "sandstream.cli", *arguments]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def actor(environ: dict[str, str], folder: Path, *flags: str) -> Iterator[Traced]:
    """A tracing actor, from when it is ready until it is told to stop."""
    folder.mkdir()
    log, console, store = folder / "log", folder / "console", folder / "t.db"
    with Receiver() as receiver, log.open("wb") as err, console.open("wb") as out:
        more = receiver.environment() | {"OTEL_TRACES_EXPORTER": "otlp,console"}
        command = [sys.executable, "-m", "sandstream.cli", "actor", "tracing", "--json"]
        process = subprocess.Popen(
            [*command, "--store", str(store), *flags], env=environ | more, stdout=out, stderr=err
        )
        try:
            wait_until(lambda: console.read_bytes().endswith(b"\n"), "the actor is ready")
            yield Traced(store, receiver, log, console)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()


def wait_until(holds: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("privacy")
    (folder / "privacy_hook.py").write_text(HOOK)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    environ = kept | {
        "SANDSTREAM_HOME": str(folder / "home"),
        "OPENAI_API_KEY": "sk-very-secret",
        "PYTHONPATH": str(folder),
    }
    hook = ("--content", "--redact", "privacy_hook:redact")
    with (
        actor(environ, folder / "open", "--group", "open", *hook) as opened,
        actor(environ, folder / "plain", "--group", "plain") as plain,
    ):
        done = subprocess.run(
            [sys.executable, str(PROGRAM)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        runs: dict[str, str] = told["runs"]
        for each in (opened, plain):
            wait_until(lambda each=each: each.is_done_with(list(runs.values())), "all is traced")
        yield Scene(environ, runs, opened, plain, told)


def test_what_is_planted_would_be_seen(scene: Scene) -> None:
    """Or the tests below would find nothing whatever happens."""
    otlp = b"".join(scene.open.receiver.bodies).decode(errors="replace")
    assert [it for it in [*SAID, "[redacted]", "[gone]"] if it not in otlp] == []
    assert "harmless-custom" in otlp
    assert word("workflow") in b"".join(scene.plain.receiver.bodies).decode(errors="replace")
    # without content and hook the log itself shows all that fails
    shown = "".join(scene.cli("show", it, "--all", "--json") for it in scene.runs.values())
    assert [
        it for it in FAILURES if it not in ("errordata", "path") and word(it) not in shown
    ] == []
    heard = scene.told["heard"]
    assert all(it in heard for it in (word("arguments"), word("failure"), word("output")))
    assert scene.open.log.read_bytes() != scene.open.console.read_bytes() != b""


def test_keys_leave_by_no_way(scene: Scene) -> None:
    assert scene.open.found([*KEYS, "hunter2-planted", "sk-very-secret"]) == []
    assert scene.plain.found([*KEYS, "hunter2-planted", "sk-very-secret"]) == []


def test_what_the_hook_takes_out_is_nowhere(scene: Scene) -> None:
    assert scene.open.found([*WORDS, LOOK]) == []


def test_without_content_nothing_that_was_said_is_anywhere(scene: Scene) -> None:
    private = [word(it) for it in ("prompt", "instructions", "arguments", "output", "answer")]
    boxed = [word(it) for it in ("command", "sandbox")]
    assert scene.plain.found([*SAID, *private, *boxed]) == []


@pytest.mark.parametrize("place", FAILURES)
def test_without_content_failures_do_not_quote(scene: Scene, place: str) -> None:
    assert scene.plain.found([word(place)]) == []


def test_without_content_failures_have_their_kinds(scene: Scene) -> None:
    connection = sqlite3.connect(scene.plain.store)
    try:
        runs = connection.execute("SELECT run, error_code, error_message FROM runs").fetchall()
        spans = connection.execute("SELECT error, error_message FROM spans").fetchall()
    finally:
        connection.close()
    codes = {run: (code, message) for run, code, message in runs}
    assert codes[scene.runs["fails"]] == ("user_error", "")
    assert codes[scene.runs["tripped"]] == ("input_guardrail", "")
    errors = {error for error, _ in spans}
    assert errors >= {"", "tool_error", "400", "input_guardrail", "it went wrong"}
    assert {message for _, message in spans} == {""}


def test_a_discreet_run_says_nothing_although_others_may(scene: Scene) -> None:
    texts = [f"discreet-{it}" for it in ("prompt", "question", "arguments", "answer")]
    assert scene.open.found(texts) == []
    assert scene.plain.found(texts) == []
    assert "discreet flow" in scene.told["heard"]
    assert [it for it in texts if it in scene.told["heard"]] == []


def test_a_run_that_wants_no_trace_leaves_none_and_neither_do_those_below_it(scene: Scene) -> None:
    assert scene.open.found(["silent"]) == []
    assert scene.plain.found(["silent"]) == []
    assert scene.told["of_silent"] == "[]"


def test_nothing_is_traced_but_what_was_asked_for(scene: Scene) -> None:
    """Spans of no run too: a sandbox's operations and a program's own spans have a trace."""
    for each in (scene.open, scene.plain):
        connection = sqlite3.connect(each.store)
        rows = connection.execute("SELECT run FROM runs").fetchall()
        (strays,) = connection.execute(
            "SELECT count(*) FROM spans WHERE trace_id NOT IN (SELECT trace_id FROM runs)"
        ).fetchone()
        connection.close()
        assert {run for (run,) in rows} == set(scene.runs.values())
        assert strays == 0


def test_a_store_is_its_users_only_wherever_it_is(scene: Scene) -> None:
    files = list(scene.open.store.parent.glob(f"{scene.open.store.name}*"))
    assert len(files) >= 2
    assert [it.name for it in files if it.stat().st_mode & 0o077] == []


def test_the_screen_and_the_page_mask_keys(scene: Scene, tmp_path: Path) -> None:
    for name in ("open", "refused"):
        run, page = scene.runs[name], tmp_path / f"{name}.html"
        scene.cli("show", run, "--html", str(page), "--all")
        for text in (page.read_text(), scene.cli("show", run, "--all", "--events")):
            assert [it for it in [*KEYS, "hunter2-planted"] if it in text] == [], name
            assert "[redacted]" in text, name
