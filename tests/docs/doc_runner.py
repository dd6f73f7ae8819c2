"""Runs the blocks of one page, in order, as a reader would: a directory, a shell, a Python session.

A block in the background is another terminal: what the page exported in the first is not there.

Everything that a page starts is in a process group of ours and is ended with the page.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import msgspec
from docs.doc_blocks import Block, Page
from sandstream_bus.wire import conversations as conversation_messages
from sandstream_bus.wire import memories as memory_messages
from sandstream_bus.wire import messages
from sandstream_bus.wire import open_runs as index_messages
from sandstream_bus.wire import sandboxes as sandbox_messages
from sandstream_bus.wire import sessions as session_messages
from sandstream_bus.wire import traces as trace_messages

from sandstream.testing import Conversation, ScriptedModel

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLAYED = ROOT / "examples" / "scripted_model.py"
"""Plays the model for readers without a key."""
BLOCK_S = 90.0
READY_S = 60.0
_MESSAGES = (
    messages,
    sandbox_messages,
    conversation_messages,
    index_messages,
    memory_messages,
    session_messages,
    trace_messages,
)


class PageFailed(AssertionError):
    """A block did not do what the page says."""


def conversations_of(page: Page) -> list[Conversation]:
    """What the model says on this page."""
    played = runpy.run_path(str(PLAYED))
    name = page.path.stem.lower()
    if name == "quickstart":
        return cast(list[Conversation], played["QUICKSTART"])
    known = name in played["pages"]()
    return cast(list[Conversation], played["page_script"](name)) if known else []


class PageRunner:
    """One page in a directory of its own. Use it with ``with``."""

    def __init__(self, page: Page, directory: Path, model: ScriptedModel) -> None:
        self._page = page
        self._cwd = directory / "page"
        self._cwd.mkdir(parents=True)
        # a page may write there
        left_out = shutil.ignore_patterns("wheels", "auth")
        shutil.copytree(ROOT / "deploy", self._cwd / "deploy", ignore=left_out)
        shutil.copytree(ROOT / "examples", self._cwd / "examples")
        self._bin = directory / "bin"
        self._bin.mkdir()
        self._new_terminal = self._environment(directory, model)
        self._env = self._new_terminal
        self._ports = {port: str(_free_port()) for port in ("4222", "8222", "8808")}
        self._started: list[subprocess.Popen[Any]] = []
        self._session: subprocess.Popen[str] | None = None
        self._last_output = ""
        self._logs = directory / "logs"
        self._logs.mkdir()
        self._make_commands()

    def __enter__(self) -> PageRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=5)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._wait_for_server()

    def _wait_for_server(self) -> None:
        """The private server ends by itself, a moment after its last user: wait for that."""
        lock = Path(self._env["SANDSTREAM_HOME"]) / "store.lock"
        deadline = time.monotonic() + 10
        while lock.exists() and time.monotonic() < deadline:
            with lock.open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    time.sleep(0.05)

    def run(self) -> None:
        for block, after in zip_longest(self._page.blocks, self._page.blocks[1:]):
            try:
                if "patient" in block.marks:
                    self._repeat(block, after)
                else:
                    self._run(block)
            except PageFailed as error:
                raise PageFailed(f"{block.where}: {error}") from None

    # --- one block -----------------------------------------------------------------------------

    def _repeat(self, block: Block, after: Block | None) -> None:
        """Until it works, and prints what the page shows if it shows that."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self._run(block)
                if after is not None and "output" in after.marks:
                    self._compare(after.text)
                return
            except PageFailed:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _run(self, block: Block) -> None:
        if "skip" in block.marks:
            if not block.marks["skip"]:
                raise PageFailed("skip needs a reason")
            return
        text = re.sub("|".join(self._ports), lambda found: self._ports[found[0]], block.text)
        match block.lang:
            case "python" if "name" in block.marks:
                compile(text, block.marks["name"], "exec")
                (self._cwd / block.marks["name"]).write_text(text)
            case "python":
                self._last_output = self._in_session(text, block)
            case "sh" if "background" in block.marks:
                self._in_background(text, block)
            case "sh":
                self._last_output = self._in_shell(text)
            case "text" if "output" in block.marks:
                self._compare(block.text)
            case "json" if "message" in block.marks:
                name = block.marks["message"]
                module = next(it for it in _MESSAGES if hasattr(it, name))
                msgspec.json.decode(text, type=getattr(module, name))
            case _:
                raise PageFailed(
                    f"a {block.lang or 'bare'} block is neither run nor marked: say what it is "
                    'with <!-- doctest: … -->, or why not with skip="…"'
                )

    def _in_session(self, code: str, block: Block) -> str:
        if self._session is None:
            self._session = subprocess.Popen(
                [sys.executable, str(HERE / "doc_session.py")],
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._started.append(self._session)
        assert self._session.stdin is not None and self._session.stdout is not None
        self._session.stdin.write(json.dumps({"code": code, "file": block.where}) + "\n")
        self._session.stdin.flush()
        line = self._session.stdout.readline()
        if not line:
            raise PageFailed("the Python session ended")
        answer = json.loads(line)
        if answer["error"]:
            raise PageFailed(f"{answer['error']}\nprinted:\n{answer['out']}")
        return str(answer["out"])

    def _in_shell(self, text: str) -> str:
        log, process = self._spawn(f"{text}\nenv -0 > {self._logs}/env\n", self._env)
        talk = log.with_suffix(".err")
        try:
            code = process.wait(timeout=BLOCK_S)
        except subprocess.TimeoutExpired:
            printed = log.read_text() + talk.read_text()
            raise PageFailed(f"still running after {BLOCK_S} s:\n{printed}") from None
        if code != 0 or "Traceback" in talk.read_text():
            raise PageFailed(f"exit code {code}:\n{log.read_text()}{talk.read_text()}")
        after = (self._logs / "env").read_text().split("\0")
        self._env = dict(line.split("=", 1) for line in after if "=" in line)
        return log.read_text()

    def _in_background(self, text: str, block: Block) -> None:
        log, process = self._spawn(text, self._new_terminal)
        deadline = time.monotonic() + READY_S
        talk = log.with_suffix(".err")
        while block.marks["background"] not in (said := log.read_text() + talk.read_text()):
            if process.poll() is not None:
                raise PageFailed(f"ended with {process.returncode}:\n{said}")
            if time.monotonic() > deadline:
                raise PageFailed(f"not ready after {READY_S} s:\n{said}")
            time.sleep(0.02)

    def _spawn(self, text: str, env: dict[str, str]) -> tuple[Path, subprocess.Popen[bytes]]:
        log = self._logs / f"{len(self._started)}.log"
        with log.open("wb") as output, log.with_suffix(".err").open("wb") as talk:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=self._cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=talk,
                start_new_session=True,
            )
        self._started.append(process)
        return log, process

    def _compare(self, expected: str) -> None:
        parts = [re.escape(part.strip()) for part in expected.strip().split("…")]
        if not re.search(r"[\s\S]*?".join(parts), self._last_output):
            raise PageFailed(f"expected:\n{expected}\nprinted:\n{self._last_output}")

    # --- the reader's machine ------------------------------------------------------------------

    def _environment(self, directory: Path, model: ScriptedModel) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NATS_", "OPENAI_", "SANDSTREAM_"))
        }
        scripts = Path(sys.executable).parent
        return kept | {
            "PATH": f"{self._bin}:{scripts}:{os.environ['PATH']}",
            "HOME": str(directory),
            "SANDSTREAM_HOME": str(directory / "state"),
            # a reader may stop the actors before they have deleted a box
            "SANDSTREAM_SANDBOX_GRACE_S": "20",
            "OPENAI_BASE_URL": model.base_url,
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
        }

    def _make_commands(self) -> None:
        """`nats` by a bare connection; `make` and `pip` only look whether the words make sense."""
        python = shutil.which("python", path=self._env["PATH"]) or sys.executable
        self._command("nats", f'exec {python} {HERE / "nats_command.py"} "$@"')
        self._command("make", f'exec {python} {HERE / "known_names.py"} make "$@"')
        self._command("pip", f'exec {python} {HERE / "known_names.py"} pip "$@"')

    def _command(self, name: str, body: str) -> None:
        file = self._bin / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)


def _free_port() -> int:
    """One that is free now, and that nobody is given who asks for any: a page uses it later."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
