"""An installation whose server has the configuration that ``setup --print-auth`` prints, and whose
actors are each a process under a user of their own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client as Nats
from support.memory_model import consolidation, extraction, is_phase
from support.nats_server import NatsServer

from sandstream.testing import Conversation, ScriptedModel, Step, text, tool_call

APP = '''
import asyncio
from sandstream import Agent, function_tool
from sandstream.sandbox import SandboxAgent
from sandstream.sandbox.capabilities import Filesystem, Memory, Shell

@function_tool
def look_up(city: str) -> str:
    """The weather of a city."""
    return f"8 degrees in {city}"

@function_tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"

@function_tool
async def wait_long() -> str:
    """Wait."""
    await asyncio.sleep(600)
    return "over"

clerk = Agent(name="clerk", instructions="Help.", model="gpt-5", tools=[look_up, pay, wait_long])
smith = SandboxAgent(
    name="smith", instructions="Work.", model="gpt-5",
    capabilities=[Shell(), Filesystem(), Memory(scope="shop")],
)
'''
PROGRAM = """
import asyncio
from sandstream import Agent, RunConfig, Runner, function_tool
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient

@function_tool
def look_up(city: str) -> str:
    return f"8 degrees in {city}"

clerk = Agent(name="own-clerk", model="gpt-5", tools=[look_up])
smith = SandboxAgent(name="own-smith", model="gpt-5")

async def main():
    print((await Runner.run(clerk, "weather, please")).final_output)
    config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()), run_key="own-1")
    print((await Runner.run(smith, "forge, please", run_config=config)).final_output)

asyncio.run(main())
"""
ACTORS = {
    "harness": ("actor", "harness"),
    "worker": ("worker", "app.py"),
    "sandbox": ("actor", "sandbox"),
    "memory": ("actor", "memory"),
    "sessions": ("actor", "sessions"),
    "tracing": ("actor", "tracing"),
}
INSIDE = (
    "admin=admin",
    "harness=harness:main",
    "worker=worker:app",
    "sandbox=sandbox:local",
    "memory=memory",
    "sessions=sessions",
    "tracing=tracing:main",
    "program=program",
    "watcher=actor:watcher",
)
_CORRECTION = "echo 'Bend it.' >> memories/MEMORY.md"
_VIOLATION = re.compile(r'"(\S+?)/user:(\S+?)" - (\w+ Violation) - (.*)$')
DEADLINE_S = 45.0


def steps() -> list[Step]:
    """What the model says, by what it was asked."""

    def asked(word: str, *, after_tool: bool) -> Callable[[Any], bool]:
        def holds(request: Any) -> bool:
            answered = "function_call_output" in json.dumps(request.body.get("input"))
            return word in request.text and answered == after_tool and not is_phase(request)

        return holds

    def conversation(word: str, tool: str, arguments: dict[str, Any], end: str) -> list[Step]:
        return [
            tool_call(tool, arguments).when(asked(word, after_tool=False)).forever(),
            text(end).when(asked(word, after_tool=True)).forever(),
        ]

    return [
        *conversation("weather, please", "look_up", {"city": "Oslo"}, "8 degrees."),
        *conversation("pay, please", "pay", {"euros": 7}, "Paid."),
        *conversation("wait, please", "wait_long", {}, "Over."),
        *conversation("forge, please", "exec_command", {"cmd": "echo done > made"}, "Forged."),
        *conversation("correct, please", "exec_command", {"cmd": _CORRECTION}, "Corrected."),
        extraction("forging", "Lesson: iron is hot."),
        *consolidation(),
    ]


class Guarded:
    """One server, its configuration, and the processes that work on it."""

    def __init__(self, directory: Path, model_url: str, *options: str) -> None:
        self.directory = directory
        self._model_url = model_url
        self.auth = directory / "auth"
        self._processes: list[subprocess.Popen[bytes]] = []
        done = self.run("", "setup", "--auth-dir", str(self.auth), *options)
        assert done.returncode == 0, done.stderr
        config = (self.auth / "auth.conf").read_text()
        self.server = NatsServer(directory / "nats", config=config)

    def env(self, user: str) -> dict[str, str]:
        """Of a process of that user; no user: of one that talks to no server."""
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        env = kept | {
            "SANDSTREAM_HOME": str(self.directory / "home"),
            "OPENAI_API_KEY": "sk-none",
            "OPENAI_BASE_URL": self._model_url,
        }
        if not user:
            return env
        if user in ("tracing", "program"):
            env |= {"OTEL_METRICS_EXPORTER": "console", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
        lines = (self.auth / f"{user}.env").read_text().splitlines()
        return env | {"NATS_URL": self.server.url} | dict(it.split("=", 1) for it in lines)

    def run(self, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandstream.cli", *arguments],
            env=self.env(user),
            cwd=self.directory,
            text=True,
            timeout=DEADLINE_S,
            capture_output=True,
        )

    def start(self, user: str, *arguments: str, home: str = "home") -> subprocess.Popen[bytes]:
        """A service, until the end; returns when it is ready."""
        command = ["-m", "sandstream.cli", *arguments, "--json"]
        return self.start_python(user, *command, home=home)

    def start_python(
        self, user: str, *arguments: str, home: str = "home"
    ) -> subprocess.Popen[bytes]:
        """A program that says a line when it is ready, until the end."""
        said = self.directory / f"said-{len(self._processes)}"  # a pipe that nobody reads gets full
        with said.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=self.env(user) | {"SANDSTREAM_HOME": str(self.directory / home)},
                cwd=self.directory,
                stdout=output,
            )
        self._processes.append(process)
        deadline = time.monotonic() + DEADLINE_S
        while b"\n" not in said.read_bytes():
            is_late = process.poll() is not None or time.monotonic() > deadline
            assert not is_late, f"{arguments} could not start as {user}"
            time.sleep(0.02)
        return process

    def violations(self) -> list[str]:
        """What the server has forbidden so far: who, and which subject."""
        found = (_VIOLATION.search(line) for line in self._log().splitlines())
        return [f"{it[2]}: {it[3]} - {it[4]}" for it in found if it]

    async def until_denied(
        self, user: str, what: str, subjects: Iterable[str], *, is_outside: bool = True
    ) -> None:
        """The server has said in its log that it forbids all of these; it writes that late. It
        renames calls of the API from outside.
        """
        renames = is_outside and what == "Publish"
        names = [it.replace("$JS.API.", "_API.") if renames else it for it in subjects]
        expected = [f'/user:{user}" - {what} Violation - Subject "{it}"' for it in names]
        deadline = time.monotonic() + 10
        while missing := _missing(self._log(), expected):
            assert time.monotonic() < deadline, missing
            expected = missing
            await asyncio.sleep(0.05)

    def _log(self) -> str:
        return (self.server._directory / "nats.log").read_text()

    async def connect(self, user: str, errors: list[str] | None = None) -> Nats:
        env = self.env(user)

        async def remember(error: Exception) -> None:
            if errors is not None:
                errors.append(str(error))

        return await nats.connect(
            self.server.url,
            user=env["NATS_USER"],
            password=env["NATS_PASSWORD"],
            inbox_prefix=env["NATS_INBOX_PREFIX"],
            error_cb=remember,
        )

    def close(self) -> None:
        """All at once: each may take its time."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            _end(process)
        self.server.kill()


def _missing(log: str, expected: list[str]) -> list[str]:
    return [it for it in expected if it not in log]


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
    process.wait(15)


@contextmanager
def guarded(
    directory: Path,
    *users: str,
    actors: bool = True,
    conversations: Sequence[Conversation] = (),
) -> Iterator[Guarded]:
    """With the actors at work, each under its own role."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "app.py").write_text(APP)
    (directory / "program.py").write_text(PROGRAM)
    with ScriptedModel(steps(), conversations=conversations, strict=not conversations) as model:
        options = [part for user in (*INSIDE, *users) for part in ("--grant", user)]
        world = Guarded(directory, model.base_url, *options)
        world.server.start()
        try:
            set_up = world.run("admin", "setup")
            assert set_up.returncode == 0, set_up.stderr
            for user, command in ACTORS.items() if actors else ():
                world.start(user, *command)
            yield world
        finally:
            world.close()


@contextmanager
def tenants(directory: Path, *names: str) -> Iterator[Guarded]:
    """Tenants on one server, each with an administrator and a user alice."""
    directory.mkdir(parents=True, exist_ok=True)
    options = [part for name in names for part in ("--tenant", name)]
    options += ["--grant", "admin=admin", "--grant", "alice=submit,follow"]
    world = Guarded(directory, "http://127.0.0.1:9", *options)
    world.server.start()
    try:
        for name in names:
            set_up = world.run(f"{name.partition('=')[0]}.admin", "setup")
            assert set_up.returncode == 0, set_up.stderr
        yield world
    finally:
        world.close()


class Person:
    """Somebody outside, with a plain NATS client."""

    def __init__(self, connection: Nats, user: str, prefix: str = "sandstream") -> None:
        self.connection = connection
        self.user = user
        self.prefix = prefix

    async def ask(self, rest: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
        """Publish below ``ask.<user>``; what the server acknowledged."""
        subject = f"{self.prefix}.ask.{self.user}.{rest}"
        ack = await self.connection.request(
            subject, json.dumps(body).encode(), timeout=10, headers=headers or None
        )
        found: dict[str, Any] = json.loads(ack.data)
        return found

    async def submit(self, agent: str, key: str, input: str, **task: Any) -> str:
        # not Nats-Msg-Id: a message of somebody else with the same id would count as this one
        ack = await self.ask(f"task.{agent}", {"input": input, **task}, **{"Sandstream-Key": key})
        assert "seq" in ack, ack
        return f"{self.user}={key}"

    async def stored(self, query: dict[str, Any], stream: str = "SANDSTREAM_LOG") -> Any:
        """A message of a stream; None if there is none."""
        subject = f"$JS.API.STREAM.MSG.GET.{stream}"
        reply = await self.connection.request(subject, json.dumps(query).encode(), timeout=10)
        answer = json.loads(reply.data)
        return answer.get("message")

    async def until(self, run: str, kind: str) -> Any:
        """Wait for an event of a run; the newest."""
        return await self.until_stored(f"{self.prefix}.run.{run}.{kind}")

    async def until_stored(
        self, subject: str, stream: str = "SANDSTREAM_LOG", kind: str = ""
    ) -> Any:
        """Wait for a message on a subject; with a kind: until the newest is of that type."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await self.stored({"last_by_subj": subject}, stream)
                message = json.loads(base64.b64decode(found["data"])) if found else {}
                if found and kind in ("", message.get("type")):
                    return message
                await asyncio.sleep(0.05)
