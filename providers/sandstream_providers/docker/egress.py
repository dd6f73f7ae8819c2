"""The way out of a box without a network: a proxy in a container of its own, for listed hosts only.

The box stays without a network. Its agent accepts on a port of the box's loopback and passes each
connection to a unix socket, behind which the proxy listens. Programs find it by the usual variables
(``HTTPS_PROXY``). What does not use them reaches nothing, and no name is looked up in the box.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec

from sandstream_providers.box.start import proxy_command
from sandstream_providers.docker.container import (
    AGENT,
    PROXY,
    RUN,
    STOP_SIGNAL,
    Plan,
    bind,
    proxy_key,
)
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineConflict
from sandstream_providers.docker.folders import LEASE, Folders, socket_address
from sandstream_providers.docker.labels import COMPANION, container_name, labels_of
from sandstream_providers.docker.seen import Seen, find, log_tail
from sandstream_providers.interface import BoxSpec, ProviderError
from sandstream_providers.leases import Patience

PORT = 3128
SOCKET = "proxy.sock"
_MB = 1024 * 1024
_START_S = 20.0
_PAUSE_S = 0.02


def way_out() -> dict[str, Any]:
    """The agent's part."""
    return {"way_out": [PORT, f"{PROXY}/{SOCKET}"]}


def variables() -> dict[str, str]:
    """What tells programs in the box of the proxy."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    direct = "localhost,127.0.0.1,::1"
    return {
        **dict.fromkeys(names, f"http://127.0.0.1:{PORT}"),
        "no_proxy": direct,
        "NO_PROXY": direct,
    }


def create(api: Any, plan: Plan, folders: Folders, patience: Patience) -> None:
    """The container of the proxy, which does not run yet. It is made of the box's own image."""
    if not plan.has_agent or not plan.shared:
        raise ProviderError(
            "egress needs an image with Python 3.8 or newer, and an engine on this machine"
        )
    key = plan.spec.key
    place = folders.proxy(key)
    place.mkdir(mode=0o700, exist_ok=True)
    place.chmod(0o777)  # below a private directory; the box sees it read-only
    config = {
        "hosts": plan.options.egress,
        "listen": f"{PROXY}/{SOCKET}",
        "lease": f"{RUN}/{LEASE}",
        "idle_s": patience.idle_s,
        "busy_s": patience.busy_s,
    }
    spec = msgspec.structs.replace(plan.spec, key=proxy_key(key))
    host_config = api.create_host_config(
        network_mode="bridge",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        mem_limit=256 * _MB,
        pids_limit=64,
        mounts=[
            bind(str(folders.agent(key)), AGENT, read_only=True),
            bind(str(folders.run(key)), RUN, read_only=True),
            bind(str(place), PROXY, read_only=False),
        ],
    )
    api.create_container(
        plan.image.id,
        name=container_name(proxy_key(key)),
        entrypoint=proxy_command(json.dumps(config), agent=AGENT, python=plan.image.python),
        command=[],
        user="{}:{}".format(*plan.user),
        labels={**labels_of(spec, {}), COMPANION: key},
        stop_signal=STOP_SIGNAL,
        host_config=host_config,
    )


async def start(engine: Engine, folders: Folders, spec: BoxSpec) -> None:
    """Start the proxy of a box whose folder is open, and wait until it listens."""
    key, path = proxy_key(spec.key), folders.proxy(spec.key) / SOCKET
    path.unlink(missing_ok=True)
    seen = await _seen(engine, key)
    await _stop(engine, seen)
    doing = f"start the proxy of sandbox {spec.key}"
    await engine.call(doing, lambda api: api.start(seen.id))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_S
    while not await _listens(path):
        if loop.time() > deadline or (await _seen(engine, key)).state == "stopped":
            tail = await log_tail(engine, seen.id)
            raise ProviderError(f"cannot {doing}: it does not listen{tail}")
        await asyncio.sleep(_PAUSE_S)


async def _stop(engine: Engine, seen: Seen) -> None:
    """Its lease is that of the box's last start."""
    if seen.state != "stopped":
        with contextlib.suppress(EngineConflict):
            await engine.call("end a proxy", lambda api: api.stop(seen.id, timeout=0))


async def _seen(engine: Engine, key: str) -> Seen:
    seen = await find(engine, key)
    if seen is None:
        raise ProviderError(f"the container {container_name(key)} is gone: delete the sandbox")
    return seen


async def _listens(path: Path) -> bool:
    try:
        with socket_address(path) as address:
            _, writer = await asyncio.open_unix_connection(address)
    except OSError:
        return False
    writer.close()
    return True
