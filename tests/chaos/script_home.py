"""A directory where scripts run without set-up: its private server starts and ends by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from chaos.evidence import Effect, read_ledger
from chaos.processes import Program
from sandstream_bus.embedded.lease import stop_server
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.subjects import RunId

from sandstream.client import Client
from sandstream.settings import Settings


class ScriptHome:
    """Owns the scripts it starts. The server ends with its last user; ``close`` waits for that."""

    def __init__(self, directory: Path, model_url: str) -> None:
        directory.mkdir(parents=True)
        self.home = directory / "home"
        self._directory = directory
        self._ledger = directory / "ledger.jsonl"
        self._model_url = model_url
        self._programs: list[Program] = []

    def env(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "SANDSTREAM_HOME": str(self.home),
            "OPENAI_BASE_URL": self._model_url,
            "OPENAI_API_KEY": "none",
            "CHAOS_LEDGER": str(self._ledger),
        }

    async def script(
        self, key: str, text: str, *, crash_at: str | None = None, name: str = "script"
    ) -> Program:
        stderr = self._directory / f"{len(self._programs):03}-{key}.log"
        program = await Program.start(
            name, key, text, env=self.env(), stderr=stderr, crash_at=crash_at
        )
        self._programs.append(program)
        return program

    def server_record(self) -> dict[str, Any]:
        """The keeper's record of itself and its server."""
        record: dict[str, Any] = json.loads((self.home / "server.json").read_text())
        return record

    async def client(self) -> Client:
        return await Client.connect(Settings(home=self.home))

    async def events(self, key: str) -> list[LogEvent]:
        async with await self.client() as client:
            return await client.bus.log.read(RunId(key))

    def effects(self, key: str) -> list[Effect]:
        return [effect for effect in read_ledger(self._ledger) if effect.key == key]

    async def move(self) -> None:
        """Use another server from now on, which knows nothing."""
        await stop_server(self.home)
        self.home = self._directory / "other-home"

    async def close(self) -> None:
        for program in self._programs:
            await program.kill()
        if self.home.exists():
            await stop_server(self.home)
