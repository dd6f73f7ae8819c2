"""The lab: a temporary state directory, scripted model servers, programs. Cleans up at its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import peer
import processes
from sandstream_providers.local.provider import LocalProvider
from sandstream_providers.local.records import Layout

from sandstream.testing import Script

_PROGRAMS = Path(__file__).parent / "programs"
ANSWER_TIMEOUT_S = 300.0
_MEMORY = Path("/dev/shm")
_NO_TRACING = "OPENAI_AGENTS_DISABLE_TRACING"
"""Disables the baseline's export to its vendor. Ours stays on: traces are read from the log."""


async def _remove_boxes(home: Path) -> None:
    """Remove all sandboxes: they outlive their creators."""
    provider = LocalProvider(home)
    for key in Layout(home).all_keys():
        await provider.delete(key)
    await provider.close()


def repetitions(count: int, within_s: float) -> Iterator[int]:
    """Repeat at least once, but start no repetition after the deadline."""
    deadline = time.monotonic() + within_s
    for number in range(count):
        if number and time.monotonic() > deadline:
            return
        yield number


class ProgramFailed(RuntimeError):
    """A side program died or did not answer; its stderr went to the terminal."""


class Program:
    """A process that reads requests from stdin and answers each with a line of JSON."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self._name = " ".join(Path(part).name for part in command[1:])
        self._process = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pid = self._process.pid
        self._is_ready = False

    def wait_ready(self) -> None:
        """Wait until the program is ready; programs start in parallel."""
        if not self._is_ready:
            self._read()
            self._is_ready = True

    def ask(self, **request: Any) -> dict[str, Any]:
        self.wait_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise ProgramFailed(f"{self._name}: {'ended' if ready else 'no answer'}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End of input tells the program to end; if it does not, it is killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Lab:
    """Everything that a benchmark starts, and its cleanup."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sandstream-bench-"))
        self._programs: list[Program] = []
        self._models: list[subprocess.Popen[bytes]] = []
        self._homes: list[Path] = []
        self._fast_folder: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_programs()
        for home in self._homes:
            asyncio.run(_remove_boxes(home))
            self.stop_server(home)
        for model in self._models:
            model.terminate()
            model.wait()
        for folder in (self._folder, self._fast_folder):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def model(self, script: Script) -> str:
        """Start a scripted model server and return its base URL."""
        file = self._folder / f"script-{len(self._models)}.json"
        file.write_bytes(script.to_json())
        process = subprocess.Popen(
            [sys.executable, "-m", "sandstream.testing.server", "--script", file, "--no-bodies"],
            stdout=subprocess.PIPE,
        )
        self._models.append(process)
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        if not url:
            raise ProgramFailed("the scripted model server did not start")
        return url

    @property
    def model_pids(self) -> list[int]:
        return [model.pid for model in self._models]

    def home(self) -> Path:
        """A fresh state directory. The first program that needs its server starts it."""
        home = self._folder / f"home-{len(self._homes)}"
        self._homes.append(home)
        return home

    def fast_home(self) -> Path:
        """A fresh state directory in memory, if possible: for work with many files, whose time on
        disk depends on earlier deletions there.
        """
        if not _MEMORY.is_dir():
            return self.home()
        if self._fast_folder is None:
            self._fast_folder = Path(tempfile.mkdtemp(prefix="sandstream-bench-", dir=_MEMORY))
            self._fast_folder.chmod(0o755)  # sandboxes of other users are below it
        home = self._fast_folder / f"home-{len(self._homes)}"
        self._homes.append(home)
        return home

    def environment(self, base_url: str, home: Path, side: str = "sandstream") -> dict[str, str]:
        """The same for every side, without the caller's settings."""
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OPENAI_", "NATS_", "SANDSTREAM_", "OTEL_"))
            and not name.lower().endswith("_proxy")
        }
        return env | {
            "OPENAI_API_KEY": "scripted",
            "OPENAI_BASE_URL": base_url,
            "SANDSTREAM_HOME": str(home),
            **({_NO_TRACING: "1"} if side in ("agents", "temporal") else {}),
            "TMPDIR": str(home.parent),  # puts the baseline's sandboxes next to ours
        }

    def command(self, program: str, side: str, loop: str = "asyncio") -> list[str]:
        makers = {"agents": peer.python, "temporal": peer.temporal_python}
        python = makers[side]() if side in makers else sys.executable
        return [python, str(_PROGRAMS / f"{program}.py"), side, loop]

    def start(
        self,
        program: str,
        side: str,
        *,
        loop: str = "asyncio",
        base_url: str = "",
        home: Path,
        settings: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a side program. Its first request waits until it is ready."""
        environment = self.environment(base_url, home, side) | dict(settings or {})
        started = Program(self.command(program, side, loop), environment)
        self._programs.append(started)
        return started

    def close_programs(self) -> None:
        for program in reversed(self._programs):
            program.close()
        self._programs.clear()

    def server_pids(self, home: Path) -> list[int]:
        """nats-server and its keeper; empty if there is no server."""
        try:
            record = json.loads((home / "server.json").read_bytes())
        except FileNotFoundError:
            return []
        return [pid for pid in (record["server_pid"], record["keeper_pid"]) if pid]

    def stop_server(self, home: Path) -> None:
        """Stop the private server of a state directory that is no longer used."""
        pids = [pid for pid in self.server_pids(home) if processes.is_alive(pid)]
        if not pids:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[-1], signal.SIGTERM)  # the keeper stops its server
        deadline = time.monotonic() + 10
        while any(map(processes.is_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
