"""The real command line as processes: started, spoken to, stopped."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from support.processes import warm_python
from support.processes.warm_server import Order

from sandstream.cli.main import main
from sandstream.client import Client
from sandstream.settings import Settings

APP = '''
import asyncio
from sandstream import Agent, RunConfig, function_tool

@function_tool
async def get_weather(city: str) -> str:
    """The weather of a city."""
    if city == "Atlantis":
        await asyncio.sleep(120)
    return f"21 degrees in {city}"

run_config = RunConfig(workflow_name="weather")
assistant = Agent(name="assistant", instructions="Help.", tools=[get_weather], model="gpt-5")
'''
CODER = """
from sandstream.sandbox import SandboxAgent

coder = SandboxAgent(name="coder", instructions="Work.", model="gpt-5")
"""
DEADLINE_S = 30.0


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def one(self) -> Any:
        (line,) = self.lines
        return line


class Service(NamedTuple):
    """A service that runs, and what it said when it was ready."""

    process: warm_python.WarmProcess
    ready: dict[str, Any]

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9"""
        self.process.kill()


class Cli:
    """Commands in one home, with one model."""

    def __init__(self, home: Path, model_url: str) -> None:
        self.home = home
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        self.env = kept | {
            "SANDSTREAM_HOME": str(home),
            "OPENAI_API_KEY": "sk-very-secret",
            "OPENAI_BASE_URL": model_url,
            "PYTHONWARNINGS": "error",
        }

    def start(self, *arguments: str, env: dict[str, str] | None = None, **how: Any) -> Any:
        """A process, with pipes unless told otherwise."""
        options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        options |= {"env": self.env | (env or {}), "text": True} | how
        return subprocess.Popen([sys.executable, "-m", "sandstream.cli", *arguments], **options)

    def __call__(self, *arguments: str, input: str = "", env: dict[str, str] | None = None) -> Done:
        """A command from start to end, in a process of its own."""
        order = self._order(*arguments, env=env)
        try:
            done = warm_python.run(order, given=input, within_s=DEADLINE_S)
        except subprocess.TimeoutExpired as late:
            told = "\n".join(map(str, (late.output, late.stderr)))
            raise AssertionError(f"{arguments} did not end:\n{told}") from None
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def _order(self, *arguments: str, env: dict[str, str] | None = None) -> Order:
        """For a process that starts quicker than one of ``start``, as there are so many."""
        return Order(
            "sandstream.cli",
            list(arguments),
            env=self.env | (env or {}),
            directory=str(Path.cwd()),
            is_module=True,
        )

    def here(self, *arguments: str) -> Done:
        """The same in this process, which need not start first: for the many short commands."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
        root = logging.getLogger()
        level = root.level
        with (
            patch.dict(os.environ, self.env, clear=True),
            patch("sys.stdin", io.StringIO()),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = int(ended.code or 0)
            finally:
                root.setLevel(level)
        said = [stream.detach().getvalue().decode() for stream in (out, err)]
        assert "Traceback" not in said[1], said[1]
        return Done(code, *said)

    @contextmanager
    def service(self, *arguments: str) -> Iterator[Service]:
        """A service that has said that it is ready; ``ready`` is what it said. Stopped at the end,
        which must be quick and clean.
        """
        reads, writes = os.pipe()
        order = self._order(*arguments, "--json")
        process = warm_python.start(order, None, writes, 2)
        os.close(writes)
        with os.fdopen(reads) as said:
            try:
                line = said.readline()
                assert line, f"{arguments} ended with {process.wait(DEADLINE_S)}"
                yield Service(process, json.loads(line))
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(DEADLINE_S) == 0
            finally:
                process.kill()
                process.wait(DEADLINE_S)
                process.close()


def wait_until(holds: Any, what: str) -> Any:
    """Look again and again; the first true answer."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.05)
    return found


def publish(cli: Cli, subject: str, data: bytes, msg_id: str) -> None:
    """Store a message as any client could."""

    async def send() -> None:
        async with await Client.connect(Settings.from_env(cli.env)) as client:
            await client.bus.connection.publish(subject, data, msg_id=msg_id)

    asyncio.run(send())
