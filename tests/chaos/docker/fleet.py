"""A fleet whose boxes are containers of a real engine. What exists is asked of the engine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import urllib.parse
from pathlib import Path
from typing import Any, Self

from chaos.sandbox.fleet import SandboxFleet
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.actor import installation_of
from sandstream_bus.wire.sandboxes import SandboxSpec
from sandstream_providers.docker.labels import OWNER, container_name
from support.engines import engine
from support.waiting import eventually

from sandstream.sandbox import Manifest
from sandstream.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions
from sandstream.sandbox.session.link import BusLink
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.snapshot import BusSnapshotSpec

GONE_WITHIN_S = 40.0


class DockerFleet(SandboxFleet):
    """``engine_url``: of an engine that has the images of the tests."""

    provider = "docker"

    def __init__(
        self, directory: Path, model_url: str, *, engine_url: str, image: str = engine.PYTHON
    ) -> None:
        super().__init__(directory, model_url)
        self.engine_url = engine_url
        self.image = image
        self._owner = ""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._owner = await installation_of(self.client.bus)
        return self

    def env(self) -> dict[str, str]:
        return super().env() | {
            "DOCKER_HOST": self.engine_url,
            "CHAOS_IMAGE": self.image,
            "CHAOS_REAP_S": "2.0",  # each look at an engine costs more than one at a directory
        }

    # --- boxes, as the engine sees them --------------------------------------------------------

    async def ask(self, path: str, method: str = "GET") -> Any:
        return await asyncio.to_thread(engine.ask, self.engine_url, path, method)

    async def containers(self) -> list[dict[str, Any]]:
        """Those of this fleet, in any state."""
        chosen = json.dumps({"label": [engine.LABEL, f"{OWNER}={self._owner}"]})
        query = urllib.parse.urlencode({"all": 1, "filters": chosen})
        found: list[dict[str, Any]] = await self.ask(f"/containers/json?{query}")
        return found

    async def boxes(self, node: str = "a") -> list[str]:
        """The keys of all containers: an engine does not know of nodes."""
        return [str(it["Labels"][engine.LABEL]) for it in await self.containers()]

    def files(self, node: str = "a") -> list[str]:
        """What a node has of its boxes on this machine: their directories, with the sockets. The
        empty file of a lock stays if its holder was killed.
        """
        folders = (self.home(node) / "docker").glob("*")
        return sorted(str(it) for it in folders if it.name != ".images")

    async def no_boxes(self, node: str = "a") -> None:
        async def left() -> list[str]:
            return [*await self.boxes(), *self.files(node)]

        async def none_left() -> bool:
            return not await left()

        try:
            await eventually(none_left, within_s=GONE_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"left of the node {node}: {await left()}") from None

    async def _remove_boxes(self, home: Path) -> None:
        for it in await self.containers():
            await self.ask(f"/containers/{it['Id']}?force=1&v=1", "DELETE")
        await super()._remove_boxes(home)
        await asyncio.to_thread(shutil.rmtree, home)

    def local_session(self, tree: str = "") -> SandboxSession:
        """A session of the other provider, whose actors share the server of this fleet."""
        return super().session(tree=tree)

    # --- sandboxes -----------------------------------------------------------------------------

    def session(
        self,
        manifest: Manifest | None = None,
        *,
        tree: str = "",
        node: str = "",
        image: str = "",
    ) -> SandboxSession:
        """``node``: the name of its only node; empty: any."""
        client = DockerSandboxClient()
        options = DockerSandboxClientOptions(image or self.image, network_mode="none")
        snapshot = BusSnapshotSpec(tree=tree)
        state = client.new_state(options=options, manifest=manifest, snapshot=snapshot)
        session = client.session_of(state, options)
        session.remote.link = BusLink(self.client.bus, self.provider, node)
        return session

    def spec(self, **fields: Any) -> SandboxSpec:
        return super().spec(options={"image": self.image}, **fields)

    async def has_file(self, record: SandboxRecord, path: str, node: str = "a") -> bool:
        if not record.key or not record.root:
            return False
        place = urllib.parse.quote(f"{record.root}/{path}")
        found = await self.ask(f"/containers/{container_name(record.key)}/archive?path={place}")
        return not (isinstance(found, dict) and "message" in found)

    async def main_process(self, key: str) -> int:
        """0: it does not run."""
        return int((await self._state(key)).get("Pid", 0))

    async def _state(self, key: str) -> dict[str, Any]:
        shown: dict[str, Any] = await self.ask(f"/containers/{container_name(key)}/json")
        return shown.get("State") or {}

    async def kill_main_process(self, key: str) -> bool:
        """kill -9 of the first process of a container, and wait until it is dead; one that is
        frozen dies when it is woken. False: none runs.
        """
        pid = await self.main_process(key)
        if not pid:
            return False
        os.kill(pid, signal.SIGKILL)

        async def is_dead() -> bool:
            state = await self._state(key)
            return int(state.get("Pid", 0)) != pid or bool(state.get("Paused"))

        await eventually(is_dead, what=f"the container of {key} is dead")
        return True
