"""All actors as real processes, as users start them, on a server of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.processes import Program
from chaos.sandbox.fleet import remove_boxes
from support.nats_server import NatsServer

from sandstream.client import Client
from sandstream.settings import Settings

CREW = Path(__file__).parent / "programs" / "crew.py"
ACTORS: dict[str, tuple[str, ...]] = {
    "harness": ("actor", "harness"),
    "worker": ("worker", str(CREW)),
    "sandbox": ("actor", "sandbox"),
    "memory": ("actor", "memory"),
    "tracing": ("actor", "tracing"),
}
_BAD_LINES = re.compile(
    r"Traceback \(most recent call last\)|Task exception was never retrieved"
    r"|was never awaited|Unclosed|handler failed"
)
_FRAME = re.compile(r'File ".*?([^/]+\.py)", line (\d+)')
_DROPPED = re.compile(r"debug: message dropped \(.*?consumer=([^,]+), sequence=(\d+)")


class Installation:
    """Leave the context, and all of it is gone."""

    def __init__(self, directory: Path, model_url: str) -> None:
        self.directory = directory
        self.ledger = directory / "ledger.jsonl"
        self.server = NatsServer(directory / "nats")
        self.programs: dict[str, Program] = {}
        self.node = ""
        self._model_url = model_url

    async def __aenter__(self) -> Self:
        self.directory.mkdir(parents=True)
        try:
            await asyncio.to_thread(self.server.start)
            await asyncio.to_thread(self.server.set_up)
            started = (self._start(name, *words) for name, words in ACTORS.items())
            for name, ready in zip(ACTORS, await asyncio.gather(*started), strict=True):
                self.node = ready.get("node") or self.node
                assert self.programs[name].is_running
            settings = Settings(home=self.directory, nats=self.server.options())
            self.client = await Client.connect(settings)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(program.kill() for program in self.programs.values()))
        if hasattr(self, "client"):
            await self.client.close()
        try:
            await remove_boxes(self.directory / "sandbox")
        finally:
            self.server.kill()

    async def _start(self, name: str, *words: str) -> dict[str, Any]:
        env = {
            **{it: os.environ[it] for it in ("PATH", "HOME") if it in os.environ},
            "NATS_URL": self.server.url,
            "SANDSTREAM_HOME": str(self.directory / name),
            "OPENAI_BASE_URL": self._model_url,
            "OPENAI_API_KEY": "none",
            "FUZZ_LEDGER": str(self.ledger),
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
        }
        stderr = self.directory / f"{name}.log"
        program = await Program.start(
            "command", *words, "--json", "--debug", env=env, stderr=stderr
        )
        self.programs[name] = program
        said = await program.line()
        if not said:
            raise AssertionError(f"{name} did not start: {program.errors()}")
        ready: dict[str, Any] = json.loads(said)
        return ready

    # --- what can be seen of them --------------------------------------------------------------

    def dead(self) -> list[str]:
        return [name for name, program in self.programs.items() if not program.is_running]

    def rss_mb(self) -> dict[str, float]:
        """Resident memory of each actor, and of the server."""
        pids = {name: it.pid for name, it in self.programs.items() if it.is_running}
        return {name: _rss_mb(pid) for name, pid in (pids | {"server": self.server.pid}).items()}

    def bad_lines(self) -> list[str]:
        """Where a log shows an error that nobody has handled: where it was raised, and what."""
        found = []
        for name, program in self.programs.items():
            lines = program.stderr.read_text(errors="replace").splitlines()
            for number, line in enumerate(lines):
                if _BAD_LINES.search(line):
                    found.append(f"{name}: {_told(lines, number)}")
        return found

    def dropped(self) -> Counter[tuple[str, int]]:
        """What consumers have dropped, by their names and the message's sequence."""
        found: Counter[tuple[str, int]] = Counter()
        for program in self.programs.values():
            text = program.stderr.read_text(errors="replace")
            found.update((it[1], int(it[2])) for it in _DROPPED.finditer(text))
        return found


def _told(lines: list[str], number: int) -> str:
    """The last frame and the error of a traceback, and the line before it."""
    where, number = "", number + 1
    before = lines[max(0, number - 2)]
    while number < len(lines) and (lines[number].startswith(" ") or not lines[number].strip()):
        if match := _FRAME.search(lines[number]):
            where = f"{match[1]}:{match[2]}"
        number += 1
    error = lines[number] if number < len(lines) else ""
    return f"{error[:200]} at {where} after: {before[:200]}"


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
