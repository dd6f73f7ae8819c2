"""An installation whose NATS store can be filled, emptied and replaced; actors are processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from chaos.sandbox.fleet import remove_boxes
from sandstream_bus.embedded.lease import stop_server
from support.nats_server import NatsServer
from support.waiting import until

APP = '''
import asyncio, os
from sandstream import Agent, function_tool
from sandstream.sandbox import SandboxAgent

def leave(line):
    ledger = os.open(os.environ["FAULTS_LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(ledger, line.encode() + b"\\n")
    os.close(ledger)

@function_tool
async def act(name: str) -> str:
    """Leave a line in the ledger, then wait until the gate of this name is open."""
    leave(name)
    while not os.path.exists(os.environ["FAULTS_GATE"] + name):
        await asyncio.sleep(0.02)
    return f"did {name} {os.urandom(8000).hex()}"  # more than fits into what is left of a page

clerk = Agent(name="clerk", instructions="Work.", tools=[act], model="gpt-5")
coder = SandboxAgent(name="coder", instructions="Work.", tools=[act], model="gpt-5")
'''
STOP_S = 20.0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Actor:
    """One process of the installation; what it says on stderr is kept."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self._errors = errors

    @property
    def said(self) -> str:
        return self._errors.read_text()

    def count(self, text: str) -> int:
        return sum(text in line for line in self.said.splitlines())

    async def says(self, text: str, *, within_s: float = 30.0) -> str:
        """The first line with this text, once it is there."""

        def found() -> str:
            return next((line for line in self.said.splitlines() if text in line), "")

        try:
            return await until(found, within_s=within_s, what=f"{text!r} is said")
        except AssertionError:
            raise AssertionError(
                f"{text!r} was not said within {within_s} s:\n{self.said}"
            ) from None

    async def ended(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self.process.wait, STOP_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_S)


class Installation:
    """A server and its actors. Leave the context and all of them are gone."""

    def __init__(
        self,
        directory: Path,
        model_url: str,
        *,
        disk_mb: int | None = None,
        private: bool = False,
    ) -> None:
        """``disk_mb``: the size of the store's disk; ``private``: the server is a private one."""
        self.directory = directory
        self._private = private
        self.server = NatsServer(directory / "nats")
        self.store = directory / "home" if private else directory / "nats" / "store"
        self.ledger = directory / "ledger"
        self.actors: dict[str, Actor] = {}
        self._disk_mb = disk_mb
        self._ballast = self.store / "ballast"
        self.app = directory / "app.py"
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        self.env = kept | {
            "SANDSTREAM_HOME": str(directory / "home"),
            "OPENAI_API_KEY": "sk-none",
            "OPENAI_BASE_URL": model_url,
            "FAULTS_LEDGER": str(self.ledger),
            "FAULTS_GATE": str(directory / "gate-"),
        }

    def __enter__(self) -> Installation:
        self.store.mkdir(parents=True)
        self.app.write_text(APP)
        if self._disk_mb is not None:
            mount(self.store, self._disk_mb)
        if not self._private:
            self.server.start()
            self.env["NATS_URL"] = self.server.url
            self.make_streams()
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors.values():
            actor.end()
        asyncio.run(remove_boxes(self.directory / "home"))
        self.server.kill()
        if self._private:
            asyncio.run(stop_server(self.store))
        if self._disk_mb is not None:
            subprocess.run(["umount", str(self.store)], check=True)

    # --- processes -------------------------------------------------------------------------------

    def start(self, name: str, *arguments: str) -> Actor:
        """Start a service, and return when it is ready."""
        reads, writes = os.pipe()
        actor = self.actors[name] = self.begin(name, *arguments, "--json", output=writes)
        os.close(writes)
        with os.fdopen(reads) as said:
            assert said.readline(), f"{name} ended: {actor.said}"
        return actor

    def begin(self, name: str, *arguments: str, output: int = subprocess.DEVNULL) -> Actor:
        """Start a command without waiting for anything; whoever begins it ends it."""
        errors = self.directory / f"{name}.err"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "sandstream.cli", *arguments],
                env=self.env,
                stdout=output,
                stderr=file,
            )
        return Actor(process, errors)

    def start_all(self, *, sandbox: bool = False) -> None:
        self.start("harness", "actor", "harness")
        if sandbox:
            self.start("sandbox", "actor", "sandbox")
        self.start("worker", "worker", str(self.app))

    async def cli(self, *arguments: str, within_s: float = 45.0) -> Ended:
        """One command from start to end."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandstream.cli", *arguments),
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(within_s):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            out, err = await process.communicate()
            raise AssertionError(f"{arguments} did not end: {out!r} {err!r}") from None
        assert b"Traceback" not in err, err.decode()
        return Ended(process.returncode or 0, out.decode(), err.decode())

    async def doctor(self, name: str) -> list[dict[str, Any]]:
        """What doctor finds under one name."""
        done = await self.cli("doctor", "--json")
        return [it for it in map(json.loads, done.out.splitlines()) if it["name"] == name]

    # --- effects ---------------------------------------------------------------------------------

    @property
    def effects(self) -> list[str]:
        return self.ledger.read_text().split() if self.ledger.exists() else []

    def open_gate(self, name: str) -> None:
        (self.directory / f"gate-{name}").touch()

    def in_boxes(self, path: str) -> list[str]:
        """The lines of this file in all boxes together."""
        found = (self.directory / "home").glob(f"**/workspace/{path}")
        return [line for file in found for line in file.read_text().split()]

    # --- the store -------------------------------------------------------------------------------

    def make_streams(self) -> None:
        """What the operator's set-up does."""
        self.server.set_up()

    def fill_disk(self) -> None:
        fill(self._ballast)

    def free_disk(self) -> None:
        self._ballast.unlink()

    def empty_store(self) -> None:
        """Kill the server, lose its files, start it again."""
        self.server.kill()
        shutil.rmtree(self.store)
        self.store.mkdir()
        self.server.start()

    def copy_store(self) -> Path:
        """Stop the server in an orderly way, copy its files, start it again."""
        copy = self.directory / "copy"
        self.server.stop()
        shutil.copytree(self.store, copy)
        self.server.start()
        return copy

    def replace_store(self, copy: Path) -> None:
        self.server.kill()
        shutil.rmtree(self.store)
        shutil.copytree(copy, self.store)
        self.server.start()


def mount(path: Path, size_mb: int) -> None:
    """A file system of its own, so that it can be full. Fails loudly where that is not allowed."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"this test mounts a small tmpfs and needs root for it: {done.stderr}")


def fill(ballast: Path) -> None:
    """Make this file so big that not one more byte has room beside it."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            while _write(file.fileno(), size):
                pass


def _write(fd: int, size: int) -> bool:
    try:
        return os.write(fd, b"\1" * size) > 0
    except OSError:
        return False
