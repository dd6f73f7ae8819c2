"""Images: get one that is missing, and find out what a box of it can be.

What an image can do is tried once in a container that is thrown away, and kept by the image's id.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from sandstream_providers.docker.engine import Engine, remove_container
from sandstream_providers.docker.errors import EngineRefused, ImageUnusable, NoSuchContainer
from sandstream_providers.docker.labels import PREFIX
from sandstream_providers.docker.options import DockerOptions
from sandstream_providers.docker.streams import said_by
from sandstream_providers.locks import KeyLock
from sandstream_providers.progress import OnProgress, teller

logger = logging.getLogger(__name__)

_PROBE = """
read -r _
while read -r name value _; do
  case $name in Uid:) echo "uid=$value";; Gid:) echo "gid=$value";; esac
done </proc/self/status
for name in python3 python; do
  path=$(command -v "$name") || continue
  if said=$("$path" -I -S -c "$0" 2>&1); then echo "python=$said $path"
  else echo "broken=$path: $said"; fi
  break
done
echo end=
"""
_PYTHON_PROBE = (
    "import sys, json, os, select, selectors, socket, struct, fcntl, resource, zipfile, threading;"
    "print('%d.%d' % sys.version_info[:2])"
)
LEAST_PYTHON = (3, 8)
_TELL = "install Python 3.8 or newer in it, or say agent=False to use only its shell"
_MB = 1024 * 1024
_TOLD_PART = 0.1
"""People are told of so much more at a time."""
_BAD_REQUEST = 400
_TRY_S = 60.0
_OLD_S = 600.0
"""A probe that has not been started for this long belongs to a dead process."""
_PROBE_LABEL = f"{PREFIX}probe"


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a box of this image can be."""

    id: str
    env: dict[str, str] = {}
    uid: int = 0
    gid: int = 0
    """The group of the requested user, or else of the image's own user."""
    python: str = ""
    """Runs the agent. Empty: no Python, or one that is too old."""
    broken: str = ""
    """A Python that does not work, and what it said."""


class Images:
    """The images of one engine."""

    def __init__(self, engine: Engine, cache: Path) -> None:
        self._engine = engine
        self._cache = cache
        self._known: dict[str, ImageFacts] = {}

    async def facts(self, options: DockerOptions) -> ImageFacts:
        """Raises ImageUnusable, with what to do."""
        found = await self._found(options) or await self._pulled(options)
        name = f"{found['Id']}-{options.user}-{options.runtime}".replace("/", "_")
        facts = self._known.get(name) or self._read(name)
        if facts is None:
            facts = await self._tried(options, found, name)
        self._known[name] = facts
        if facts.broken and options.agent is not False:
            raise ImageUnusable(
                f"the Python of the image {options.image} does not work ({facts.broken}): {_TELL}",
                reason="python",
                image=options.image,
            )
        if options.agent and not facts.python:
            raise ImageUnusable(
                f"the image {options.image} has no Python that the agent can use: {_TELL}",
                reason="python",
                image=options.image,
            )
        return facts

    async def _found(self, options: DockerOptions) -> dict[str, Any] | None:
        """The image on this machine, or None. If it is here, no registry is asked."""
        try:
            found: dict[str, Any] = await self._engine.call(
                f"find the image {options.image}", lambda api: api.inspect_image(options.image)
            )
        except NoSuchContainer:
            return None
        except EngineRefused as error:
            if error.status != _BAD_REQUEST:
                raise
            raise ImageUnusable(
                f"{options.image!r} is not the name of an image: {error.data['why']}",
                reason="name",
                image=options.image,
            ) from error
        wanted = options.platform.split("/")[1:2]
        return found if not wanted or found.get("Architecture") == wanted[0] else None

    async def _pulled(self, options: DockerOptions) -> dict[str, Any]:
        doing = f"pull the image {options.image}"
        tell = teller()
        tell(f"pulling the image {options.image}")
        logger.info("an image is pulled", extra={"image": options.image})
        try:
            await self._engine.call(doing, lambda api: _pull(api, options, tell))
        except EngineRefused as error:
            raise _pull_error(options, str(error.data.get("why", error))) from error
        found = await self._found(options)
        if found is None:
            raise _pull_error(options, f"there is none for {options.platform or 'this engine'}")
        return found

    # --- what it can do ---------------------------------------------------------------------------

    async def _tried(self, options: DockerOptions, found: dict[str, Any], name: str) -> ImageFacts:
        """One process of this machine at a time, in a container whose name says so: what a process
        left that died here is in the way of the next one, which removes it.
        """
        place = f"{platform.node()} {self._cache.absolute()} {name}"
        digest = hashlib.sha256(place.encode()).hexdigest()[:16]
        async with KeyLock(self._cache / f"{digest}.lock", remove_after=True):
            facts = self._read(name)
            if facts is None:
                probe = f"sandstream-probe-{digest}"
                await remove_container(self._engine, probe)
                facts = await self._probed(options, found, probe)
                self._write(name, facts)
        return facts

    async def _probed(
        self, options: DockerOptions, found: dict[str, Any], probe: str
    ) -> ImageFacts:
        doing = f"try the image {options.image}"
        await self._engine.call(doing, lambda api: _make_probe(api, probe, found["Id"], options))
        try:
            said = await self._engine.call(doing, lambda api: said_by(api, probe, _TRY_S))
            text = said.decode(errors="replace")
        except EngineRefused as error:
            raise _unusable(options, found, str(error.data.get("why", error))) from error
        finally:
            await remove_container(self._engine, probe)
        lines = pairs(text.splitlines())
        if "end" not in lines:
            raise _unusable(options, found, text.strip()[-300:])
        version, _, path = lines.get("python", "").partition(" ")
        fits = bool(path) and _version(version) >= LEAST_PYTHON
        env = (found.get("Config") or {}).get("Env") or []
        return ImageFacts(
            id=found["Id"],
            env=pairs(env),
            uid=int(lines.get("uid", "0")),
            gid=int(lines.get("gid", "0")),
            python=path if fits else "",
            broken=lines.get("broken", ""),
        )

    def _read(self, name: str) -> ImageFacts | None:
        try:
            return msgspec.json.decode((self._cache / name).read_bytes(), type=ImageFacts)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None  # it is found out again

    def _write(self, name: str, facts: ImageFacts) -> None:
        fresh = self._cache / f"{uuid.uuid4().hex}.new"
        fresh.write_bytes(msgspec.json.encode(facts))
        fresh.replace(self._cache / name)


def pairs(lines: Iterable[str]) -> dict[str, str]:
    """Lines of the form ``name=value``."""
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


async def remove_old_probes(engine: Engine) -> None:
    """Those of processes and machines that died before they could start them."""
    chosen = {"label": [_PROBE_LABEL], "status": ["created"]}
    listed: list[dict[str, Any]] = await engine.call(
        "list containers", lambda api: api.containers(all=True, filters=chosen)
    )
    for it in listed:
        if time.time() - float(it.get("Created") or 0) > _OLD_S:
            await remove_container(engine, str(it["Id"]))


def _make_probe(api: Any, name: str, image: str, options: DockerOptions) -> None:
    """A container that removes itself when it has ended, also if this process dies."""
    api.create_container(
        image,
        name=name,
        entrypoint=["/bin/sh", "-c", _PROBE, _PYTHON_PROBE],
        command=[],
        user=options.user or None,
        stdin_open=True,
        labels={_PROBE_LABEL: "1"},
        host_config=api.create_host_config(
            auto_remove=True,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            runtime=options.runtime or None,
        ),
    )


def _pull(api: Any, options: DockerOptions, tell: OnProgress) -> None:
    """In a thread, as it may take minutes; the engine says something many times a second."""
    name, tag = _name_and_tag(options.image)
    more = {"platform": options.platform} if options.platform else {}
    parts: dict[str, tuple[int, int]] = {}
    """Of each layer: how much is here, and its size."""
    told = 0.0
    for line in api.pull(name, tag=tag, stream=True, decode=True, **more):
        if "error" in line:
            raise _pull_error(options, str(line["error"]))
        detail = line.get("progressDetail") or {}
        if line.get("status") != "Downloading" or not detail.get("total"):
            continue
        parts[str(line.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
        here, size = (sum(numbers) for numbers in zip(*parts.values(), strict=True))
        if here / size >= told + _TOLD_PART:  # a layer more makes it less
            told = here / size
            tell(f"pulling the image {options.image}: {here / _MB:.0f} of {size / _MB:.0f} MB")


def _pull_error(options: DockerOptions, why: str) -> ImageUnusable:
    lower = why.lower()
    reason, todo = "pull", "try it by hand: docker pull"
    if "unauthorized" in lower or "denied" in lower or "authentication" in lower:
        reason, todo = (
            "auth",
            "check its name, or log in to its registry: docker login, docker pull",
        )
    elif "no matching manifest" in lower or "there is none for" in lower or "platform" in lower:
        reason = "platform"
        todo = "choose an image for this machine, or say platform=; to see what there is: docker "
        todo += "manifest inspect"
    elif "not found" in lower or "manifest unknown" in lower:
        reason, todo = "missing", "check its name and tag, or build it on this engine: docker pull"
    return ImageUnusable(
        f"the image {options.image} is not here and cannot be pulled: {why}; {todo} "
        f"{options.image}",
        reason=reason,
        image=options.image,
    )


def _unusable(options: DockerOptions, found: dict[str, Any], why: str) -> ImageUnusable:
    if "exec format error" in why:
        return ImageUnusable(
            f"the image {options.image} is for {found.get('Architecture')}, which this engine "
            "cannot run: choose one for this machine, or install qemu-user-static on it",
            reason="platform",
            image=options.image,
        )
    return ImageUnusable(
        f"the image {options.image} has no shell that works at /bin/sh, and a sandbox needs one: "
        f"choose an image with a shell (not a distroless one). The engine says: {why}",
        reason="no_shell",
        image=options.image,
    )


def _name_and_tag(image: str) -> tuple[str, str]:
    """Without a tag the engine would pull all tags."""
    if "@" in image:
        name, _, digest = image.partition("@")
        return name, digest
    name, _, tag = image.rpartition(":")
    return (name, tag) if name and "/" not in tag else (image, "latest")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
