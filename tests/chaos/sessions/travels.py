"""A deployed system whose sessions can go to three providers: local, Docker, and E2B."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.processes import Program
from chaos.sessions.fleet import SessionFleet
from sandstream_actors.sandbox.actor import installation_of
from sandstream_providers.docker.labels import OWNER
from sandstream_workspaces.store import WorkspaceStore
from support.engines import engine
from support.waiting import eventually
from vendors.process import VendorServer

PROVIDERS = ("local", "docker", "e2b")
GONE_WITHIN_S = 40.0
CRASH_WITHIN_S = 90.0


class TravelFleet(SessionFleet):
    """One sandbox actor for each provider; its kind is the provider's name."""

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.replicas.update({provider: [] for provider in PROVIDERS})
        self._engine = engine.ensure()

    async def __aenter__(self) -> Self:
        self._vendor = await asyncio.to_thread(
            VendorServer.start, "e2b", home=self.directory.with_name("vendor")
        )
        try:
            return await super().__aenter__()
        except BaseException:
            await asyncio.to_thread(self._vendor.stop)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for it in await self._containers():
                await self._ask(f"/containers/{it['Id']}?force=1&v=1", "DELETE")
        finally:
            try:
                await super().__aexit__(kind, error, trace)
            finally:
                await asyncio.to_thread(self._vendor.stop)

    def env(self) -> dict[str, str]:
        return super().env() | self._vendor.env | {"DOCKER_HOST": self._engine}

    async def replica(self, kind: str, **more: Any) -> Program:
        if kind not in PROVIDERS:
            return await super().replica(kind, **more)
        settings = {"CHAOS_PROVIDER": kind, "CHAOS_REAP_S": "2.0"}
        program = await self.program("sandbox_actor", "a", "0.0", more=settings, **more)
        assert await program.line() == "ready", program.errors()
        self.replicas[kind] = [program]
        return program

    async def harmed(self, **points: str) -> list[Program]:
        """Replace each of these actors by one that dies at a crash point."""

        async def replace(kind: str, point: str) -> Program:
            await asyncio.gather(*(old.kill() for old in self.replicas[kind]))
            return await self.replica(kind, crash_at=f"{point}:1")

        return list(await asyncio.gather(*(replace(*it) for it in points.items())))

    async def followed(self, **dying: Program) -> None:
        """Start another actor as soon as one of these is dead."""

        async def follow(kind: str, program: Program) -> None:
            await program.wait(CRASH_WITHIN_S)
            assert program.crashed_ns(), f"{kind} has not died: {program.errors()}"
            await self.replica(kind)

        await asyncio.gather(*(follow(*it) for it in dying.items()))

    # --- what is there -------------------------------------------------------------------------

    async def places(self) -> dict[str, int]:
        """How many boxes there are, by provider."""
        return {
            "local": len(await self.boxes()),
            "docker": len(await self._containers()),
            "e2b": len(await asyncio.to_thread(self._vendor.boxes)),
        }

    async def only_at(self, provider: str) -> None:
        """Wait until this provider has one box, and the others have none. Empty: no box at all."""
        wanted = {name: int(name == provider) for name in PROVIDERS}

        async def look() -> bool:
            return await self.places() == wanted

        try:
            await eventually(look, within_s=GONE_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"boxes: {await self.places()}, not {wanted}") from None

    async def _containers(self) -> list[dict[str, Any]]:
        owner = await installation_of(self.client.bus)
        chosen = json.dumps({"label": [engine.LABEL, f"{OWNER}={owner}"]})
        query = urllib.parse.urlencode({"all": 1, "filters": chosen})
        found: list[dict[str, Any]] = await self._ask(f"/containers/json?{query}")
        return found

    async def _ask(self, path: str, method: str = "GET") -> Any:
        return await asyncio.to_thread(engine.ask, self._engine, path, method)

    async def content(self, tree: str, path: str) -> str:
        """A file of a checkpoint."""
        parts = WorkspaceStore(self.client.bus).read_file(tree, path)
        return b"".join([part async for part in parts]).decode()
