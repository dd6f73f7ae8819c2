"""A container as the engine shows it. What a box was made as is read from there, not remembered."""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import msgspec

from sandstream_providers.docker import container
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineSilent, NoSuchContainer
from sandstream_providers.docker.images import pairs
from sandstream_providers.docker.labels import container_name
from sandstream_providers.interface import ProviderError

State = Literal["running", "paused", "stopped"]
_STATES: dict[str, State] = {"running": "running", "restarting": "running", "paused": "paused"}
_LOG_LINES = 20
_LOG_TAIL = 2000


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One container."""

    id: str
    name: str
    labels: dict[str, str]
    state: State
    started_at: str
    exit_code: int
    has_agent: bool
    agent: str
    """The path of the agent."""
    python: str
    user: str
    env: dict[str, str]
    shared: bool
    """Are files of this machine mounted in it?"""
    read_only: bool
    in_memory: bool
    """Its workspace ends with its processes."""
    published: dict[int, tuple[str, int]]

    @property
    def instance(self) -> str:
        """Another text after each start."""
        return f"{self.id[:24]}@{self.started_at}"

    @property
    def was_started(self) -> bool:
        return not self.started_at.startswith("0001-")

    @property
    def ids(self) -> tuple[int, int]:
        uid, _, gid = self.user.partition(":")
        return int(uid), int(gid)


async def find(engine: Engine, key: str) -> Seen | None:
    """The container with the name of a box. Another program may have made it."""
    name = container_name(key)
    try:
        shown = await engine.call(
            f"look at the container {name}", lambda api: api.inspect_container(name)
        )
    except NoSuchContainer:
        return None
    return _seen(shown)


def _seen(shown: dict[str, Any]) -> Seen:
    config, state = shown.get("Config") or {}, shown.get("State") or {}
    entry = [str(word) for word in config.get("Entrypoint") or []]
    env = pairs(config.get("Env") or [])
    host = shown.get("HostConfig") or {}
    agent = next((it for it in (container.AGENT, container.AGENT_COPY) if it in entry), "")
    mounts = {str(it.get("Destination")): it for it in shown.get("Mounts") or []}
    return Seen(
        id=str(shown["Id"]),
        name=str(shown.get("Name", "")).lstrip("/"),
        labels={str(k): str(v) for k, v in (config.get("Labels") or {}).items()},
        state=_STATES.get(str(state.get("Status")), "stopped"),
        started_at=str(state.get("StartedAt", "")),
        exit_code=int(state.get("ExitCode") or 0),
        has_agent=bool(agent),
        agent=agent,
        python=entry[0] if agent else "",
        user=str(config.get("User", "")),
        env=env,
        shared=(mounts.get(container.RUN) or {}).get("Type") == "bind",
        read_only=bool(host.get("ReadonlyRootfs")),
        in_memory=env.get("HOME", "") in (host.get("Tmpfs") or {}),
        published=_published(shown),
    )


def _published(shown: dict[str, Any]) -> dict[int, tuple[str, int]]:
    ports = (shown.get("NetworkSettings") or {}).get("Ports") or {}
    found: dict[int, tuple[str, int]] = {}
    for name, places in ports.items():
        port, _, protocol = str(name).partition("/")
        for place in places or []:
            if protocol == "tcp" and place.get("HostPort"):
                found[int(port)] = (str(place.get("HostIp") or "127.0.0.1"), int(place["HostPort"]))
    return found


async def log_tail(engine: Engine, found: str) -> str:
    """What the container said last, as the end of a message; empty if it said nothing."""
    said = b""
    with contextlib.suppress(ProviderError, EngineSilent):  # the error itself matters more
        said = await engine.call(
            "read the log of a container",
            lambda api: api.logs(found, stdout=True, stderr=True, tail=_LOG_LINES),
        )
    text = said.decode(errors="replace").strip()[-_LOG_TAIL:]
    return f"; it said: {text}" if text else ""
