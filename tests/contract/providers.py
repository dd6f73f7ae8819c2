"""The providers that keep the contract: a new one joins by one entry in ``CONTENDERS``.

Each entry says how to make a fresh provider below a directory, what it can do, what it cannot do
and why, and how to harm one of its boxes behind its back. What a provider lacks is left out by that
table and nothing else: a power that is lost by accident fails
``test_powers_are_those_of_the_table``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.host import DockerHost
from sandstream_providers.docker.labels import container_name
from sandstream_providers.interface import Provider
from sandstream_providers.local import LocalProvider, cgroups
from sandstream_providers.local.records import Layout
from sandstream_providers.processes import descendants
from support.engines import engine
from vendors.shared import shared

from contract import hosted
from contract.docker_sessions import ImageClient, Options, options_of
from contract.shell_host import ShellHost
from contract.toy.sandstream_toy.host import ToyHost
from sandstream.sandbox.sandboxes.unix_local import (
    UnixLocalSandboxClient,
    UnixLocalSandboxClientOptions,
)
from sandstream.sandbox.session.sandbox_client import BaseSandboxClient

POWERS = frozenset(
    {
        "pty",
        "ports",
        "pause",
        "users",
        "limits.cpu",
        "limits.memory",
        "limits.disk",
        "isolated",
    }
)
"""What a provider says of itself."""
TRAITS = frozenset(
    {
        "limits.processes",
        "limits.file",
        "root",  # the workspace lies where it was asked for
        "grants",  # commands see a granted path, and cannot write to a read-only one
        "memory_is_named",  # a command that was ended for its memory says so
        "host_network",  # with a network, a box reaches what listens on this machine's loopback
        "tcp_ports",  # a declared port takes any connection, not only HTTP
        "closed_network",  # without a network, a box does not reach this machine
        "free_keys",  # a box may be made again under the key of one that was lost
        "big_files",  # twenty megabytes go in and out within seconds
    }
)
"""What the interface has no power for, but the suite has to know."""
SESSION_TRAITS = frozenset(
    {
        "sessions.limits",  # the options of the client have limits
        "sessions.grants",  # a session reaches a granted directory of this machine
    }
)
"""What sessions have, unless ``sessions_lack`` has a reason."""

Harm = Callable[[Path, str], Awaitable[None]]


@dataclass(frozen=True)
class Contender:
    """One provider as the suite sees it."""

    name: str
    open: Callable[[Path], Provider]
    """A provider whose boxes live below this directory; several at once are several processes."""
    crash: Harm
    """All processes of a box die at once; its files stay."""
    lose: Harm
    """The machine loses a box with all it holds."""
    powers: frozenset[str]
    """It has these everywhere."""
    client: Callable[..., BaseSandboxClient[Any]] | None = None
    """The client of sessions; takes ``dependencies``. None: only the provider itself is tested."""
    options: Callable[..., Any] | None = None
    """The client's options, from ``exposed_ports``, ``limits``, ``idle_s``."""
    depends: frozenset[str] = frozenset()
    """It has these where the machine allows it."""
    traits: frozenset[str] = frozenset()
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What it does not have, and why."""
    boxes_lack: Mapping[str, str] = field(default_factory=dict)
    """What the provider has and its boxes of this image have not, and why."""
    sessions_lack: Mapping[str, str] = field(default_factory=dict)
    """What its sessions do not have, and why."""
    environment: Callable[[], Mapping[str, str]] = dict
    """Variables that a process with its sessions needs."""
    box_options: Mapping[str, object] = field(default_factory=dict)
    """The provider's own options, for every box."""

    def has(self, power: str) -> bool:
        """Every power must be named in the table, one way or the other."""
        if power in self.boxes_lack or power in self.sessions_lack:
            return False
        if power in SESSION_TRAITS:
            return True
        if power in self.powers | self.depends | self.traits:
            return True
        assert power in self.lacks, f"{self.name} must say whether it has {power!r}"
        return False


async def _crash_local(home: Path, key: str) -> None:
    record = Layout(home).read(key)
    assert record is not None
    for process in (record.inner, record.outer):
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            while _lives(process.pid):
                await asyncio.sleep(0.005)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end while its file is read
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def _lose_local(home: Path, key: str) -> None:
    record = Layout(home).read(key)
    assert record is not None
    await _crash_local(home, key)
    cgroups.kill(record.cgroups)  # a machine takes all processes along, and the groups
    assert await cgroups.remove(record.cgroups) == []
    await asyncio.to_thread(shutil.rmtree, Layout(home).folder(key))


async def _crash_toy(home: Path, key: str) -> None:
    record = ToyHost(home).read(key)
    assert record is not None and record.agent is not None
    for pid in [record.agent.pid, *descendants(record.agent.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while _lives(pid):
            await asyncio.sleep(0.005)


async def _lose_toy(home: Path, key: str) -> None:
    await _crash_toy(home, key)
    await asyncio.to_thread(shutil.rmtree, home / "toy" / key)


def _docker(home: Path, *, agents: bool = True) -> Provider:
    return AgentProvider(DockerHost(home, Engine(engine.ensure()), agents=agents))


async def _crash_docker(home: Path, key: str) -> None:
    del home
    name = container_name(key)
    url = engine.ensure()
    await asyncio.to_thread(engine.ask, url, f"/containers/{name}/kill", "POST")
    await asyncio.to_thread(engine.ask, url, f"/containers/{name}/wait", "POST")


async def _lose_docker(home: Path, key: str) -> None:
    path = f"/containers/{container_name(key)}?force=1&v=1"
    await asyncio.to_thread(engine.ask, engine.ensure(), path, "DELETE")
    await asyncio.to_thread(shutil.rmtree, home / "docker" / key)


def _shell(name: str, *, busybox: bool, lacks: Mapping[str, str]) -> Contender:
    """Boxes that are operated by scripts: any host that can run a shell in its boxes has them."""

    def host(home: Path) -> ShellHost:
        return ShellHost(home, busybox=busybox)

    async def crash(home: Path, key: str) -> None:
        await asyncio.to_thread(host(home).end, key)

    async def lose(home: Path, key: str) -> None:
        await crash(home, key)
        await asyncio.to_thread(shutil.rmtree, host(home).folder(key))

    return Contender(
        name=name,
        open=lambda home: AgentProvider(host(home)),
        crash=crash,
        lose=lose,
        powers=host(Path()).powers,
        traits=frozenset({"host_network", "tcp_ports", "free_keys", "big_files"}),
        lacks={
            "closed_network": _PLAIN,
            **dict.fromkeys(("isolated", "grants", "limits.disk", "limits.file"), _PLAIN),
            **dict.fromkeys(("limits.cpu", "limits.processes"), "it has no control groups"),
            **dict.fromkeys(
                ("limits.memory", "memory_is_named"),
                "no agent looks at the memory of commands; an engine's limit would",
            ),
            "users": _NO_USERS,
            "root": _ROOT,
            "pause": "nothing in BoxHost makes a host do it",
            **lacks,
        },
    )


def _hosted(vendor: str, *, agents: bool = True, lacks: Mapping[str, str]) -> Contender:
    """Boxes at a vendor, whose SDK talks to a local server."""
    return Contender(
        name=vendor if agents else f"{vendor}-shell",
        open=lambda home: hosted.provider_of(vendor, agents=agents),
        client=hosted.CLIENTS[vendor] if agents else None,
        options=hosted.OPTIONS[vendor],
        environment=lambda: shared(vendor).env,
        sessions_lack=hosted.SESSIONS_LACK,
        crash=functools.partial(hosted.crash if agents else hosted.expire, vendor),
        lose=functools.partial(hosted.lose, vendor),
        powers=hosted.POWERS,
        traits=(hosted.TRAITS | ({"limits.memory", "memory_is_named"} if agents else set()))
        - lacks.keys(),
        lacks={**hosted.LACKS, **lacks},
    )


_NO_USERS = "its boxes have one user"
_ROOT = "the workspace is a directory of the host, wherever the provider keeps it"
_PLAIN = "without isolation a command has all rights of the user who runs it"


def _shell_container(
    name: str, image: str, *, client: Options, boxes_lack: Mapping[str, str]
) -> Contender:
    """Containers that are operated by scripts."""
    return Contender(
        name=name,
        open=functools.partial(_docker, agents=False),
        client=lambda **given: ImageClient(client, **given),
        options=client,
        crash=_crash_docker,
        lose=_lose_docker,
        powers=frozenset({"pty", "pause", "users", "isolated", *_CONTAINER_LIMITS}),
        traits=frozenset({"root", "grants", "closed_network", "free_keys", "big_files"}),
        lacks={
            "tcp_ports": "a forwarder of ports is a part of the agent",
            "limits.file": "it is kept, but a script cannot say that it was the reason",
            "ports": "a forwarder of ports is a part of the agent",
            "limits.processes": "the scripts that end commands need processes too",
            "memory_is_named": "where a control group ends a process it looks like any kill",
            "host_network": "its boxes have the engine's network, never that of the machine",
        },
        boxes_lack=boxes_lack,
        box_options={"image": image},
    )


_IN_PYTHON = options_of(engine.PYTHON)
_IN_SHELL = options_of(engine.PYTHON, agent=False)
_IN_BUSYBOX = options_of(engine.BUSYBOX)
_CONTAINER_LIMITS = ("limits.cpu", "limits.memory", "limits.disk")

CONTENDERS = (
    Contender(
        name="local",
        open=lambda home: LocalProvider(home),
        client=lambda **given: UnixLocalSandboxClient(isolation="required", **given),
        options=UnixLocalSandboxClientOptions,
        crash=_crash_local,
        lose=_lose_local,
        powers=frozenset({"pty", "ports", "pause", "isolated", "limits.memory", "limits.disk"}),
        depends=frozenset({"limits.cpu"}),
        traits=frozenset(
            {
                "limits.processes",
                "limits.file",
                "root",
                "grants",
                "host_network",
                "tcp_ports",
                "closed_network",
                "free_keys",
                "big_files",
            }
        ),
        lacks={
            "users": _NO_USERS,
            "memory_is_named": "where a control group ends a process it looks like any kill",
        },
    ),
    Contender(
        name="local-plain",
        open=lambda home: LocalProvider(home, isolation="none"),
        client=lambda **given: UnixLocalSandboxClient(isolation="none", **given),
        options=UnixLocalSandboxClientOptions,
        crash=_crash_local,
        lose=_lose_local,
        powers=frozenset({"pty", "ports", "pause", "limits.memory"}),
        depends=frozenset({"limits.cpu"}),
        traits=frozenset({"host_network", "tcp_ports", "free_keys", "big_files"}),
        lacks={
            "users": _NO_USERS,
            "isolated": _PLAIN,
            "closed_network": _PLAIN,
            "grants": _PLAIN,
            "limits.disk": _PLAIN,
            "limits.file": _PLAIN,
            "limits.processes": "only control groups could limit them, and few users may make one",
            "root": _ROOT,
            "memory_is_named": "where a control group ends a process it looks like any kill",
        },
    ),
    Contender(
        name="docker",
        open=_docker,
        crash=_crash_docker,
        client=lambda **given: ImageClient(_IN_PYTHON, **given),
        options=_IN_PYTHON,
        lose=_lose_docker,
        powers=frozenset({"pty", "ports", "pause", "users", "isolated", *_CONTAINER_LIMITS}),
        traits=frozenset(
            {
                "limits.processes",
                "limits.file",
                "root",
                "grants",
                "tcp_ports",
                "closed_network",
                "free_keys",
                "big_files",
            }
        ),
        lacks={
            "memory_is_named": "where a control group ends a process it looks like any kill",
            "host_network": "its boxes have the engine's network, never that of the machine",
        },
        box_options={"image": engine.PYTHON},
    ),
    _shell_container("docker-shell", engine.PYTHON, client=_IN_SHELL, boxes_lack={}),
    _shell_container(
        "docker-busybox",
        engine.BUSYBOX,
        client=_IN_BUSYBOX,
        boxes_lack={"pty": "this busybox has no program 'script'"},
    ),
    Contender(
        name="toy",
        open=lambda home: AgentProvider(ToyHost(home)),
        crash=_crash_toy,
        lose=_lose_toy,
        powers=frozenset({"pty", "ports", "limits.memory"}),
        traits=frozenset(
            {"memory_is_named", "host_network", "tcp_ports", "free_keys", "big_files"}
        ),
        lacks={
            "closed_network": _PLAIN,
            **dict.fromkeys(("isolated", "grants", "limits.disk", "limits.file"), _PLAIN),
            **dict.fromkeys(("limits.cpu", "limits.processes"), "it has no control groups"),
            "users": _NO_USERS,
            "root": _ROOT,
            "pause": "nothing in BoxHost makes a host do it",
        },
    ),
    _shell("toy-shell", busybox=True, lacks={"pty": "this busybox has no program 'script'"}),
    _shell("toy-dash", busybox=False, lacks={}),
    _hosted("daytona", lacks={}),
    _hosted("e2b", lacks={"free_keys": "E2B remembers keys that were used"}),
    _hosted("daytona", agents=False, lacks=hosted.LACKS_OF_SHELL),
)
"""``toy`` is a package of its own, as third parties write one: nothing but a BoxHost. The two after
it have no agent in their boxes."""
