"""What the tests of the Docker provider share: boxes by a line, images by a line, the engine."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.host import DockerHost
from sandstream_providers.docker.labels import container_name
from sandstream_providers.interface import BoxSpec
from support.engines import engine

OWNER = f"docker-tests-{os.getpid()}"
"""Other processes of the tests use the same engine at the same time."""


def new_spec(image: str = engine.PYTHON, **fields: Any) -> BoxSpec:
    key = fields.pop("key", None) or f"d-{uuid.uuid4().hex[:12]}"
    options = {"image": image, **fields.pop("options", {})}
    labels = {"owner": OWNER, "sandbox": key, "generation": "1", **fields.pop("labels", {})}
    return BoxSpec(key=key, labels=labels, options=options, **fields)


@contextlib.asynccontextmanager
async def docker_provider(
    home: Path, *, url: str = "", owner: str = OWNER, call_s: float = 60.0, **settings: Any
) -> AsyncIterator[AgentProvider]:
    """A provider whose boxes are gone afterwards."""
    place = Engine(url or engine.ensure(), call_s=call_s)
    provider = AgentProvider(DockerHost(home, place, **settings))
    mine = home / "docker"
    try:
        yield provider
    finally:
        for info in await provider.list_owned(owner):
            if (mine / info.key).exists():
                await provider.delete(info.key)
        await provider.close()


def inspect(key: str, url: str = "") -> dict[str, Any]:
    """What the engine shows of a box."""
    found: dict[str, Any] = engine.ask(
        url or engine.ensure(), f"/containers/{container_name(key)}/json"
    )
    return found


def is_there(key: str) -> bool:
    return "Id" in inspect(key)


@contextlib.contextmanager
def image_of(files: Mapping[str, bytes | str], *changes: str) -> Any:
    """An image made of these files, executable: bytes, or the target of a link. Gone afterwards."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    name = f"sandstream-test-{uuid.uuid4().hex[:12]}"
    import docker

    client = docker.APIClient(base_url=engine.ensure())
    try:
        client.import_image_from_data(buffer.getvalue(), repository=name, tag="it", changes=changes)
        yield f"{name}:it"
        client.remove_image(f"{name}:it", force=True)
    finally:
        client.close()


def busybox_file(path: str = "/bin/busybox") -> bytes:
    """A file of the busybox image."""
    import docker

    client = docker.APIClient(base_url=engine.ensure())
    made = client.create_container(engine.BUSYBOX, command=["true"])
    try:
        chunks, _ = client.get_archive(made["Id"], path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            file = tar.extractfile(tar.getmembers()[0])
            assert file is not None
            return file.read()
    finally:
        client.remove_container(made["Id"], force=True, v=True)
        client.close()
