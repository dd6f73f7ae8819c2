"""A sandbox actor of this machine in a process of its own.

What `sandstream actor sandbox` starts, but on the loop that is asked for. Asked to, it measures its
own part of a command: the box alone, and from the bytes of a request to those of its reply.

python measured_sandbox_actor.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import sys
import time
from typing import Any

import lab_desk
import msgspec
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_actors.sandbox.operations import Tools
from sandstream_actors.sandbox.requests import Requests
from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import Exec, SandboxReply, SandboxRequest, SandboxSpec
from sandstream_providers.interface import ExecSpec

from sandstream._run.sandbox_host import start_sandbox_actor
from sandstream._surface.connection import open_bus
from sandstream.settings import Settings

ARGV = ["sh", "-c", "true"]
SANDBOX = "parts"


class Parts:
    """Measures a command without the bus around it."""

    def __init__(self, bus: Bus, actor: SandboxActor) -> None:
        self._bus = bus
        self._lifecycle = actor.lifecycle
        self._requests = Requests(bus, Tools(actor.lifecycle, actor.provider, actor.store))

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._lifecycle.open(SANDBOX, SandboxSpec(provider="local"))
        took: dict[str, list[float]] = {"box_s": [], "actor_s": []}
        for _ in range(request["times"]):
            took["box_s"].append(await self._box())
            took["actor_s"].append(await self._actor())
        return took

    async def _box(self) -> float:
        live = await self._lifecycle.live(SANDBOX)
        spec = ExecSpec(argv=ARGV, cwd=live.record.root, env=live.env)
        began = time.perf_counter()
        done = await live.box.run(new_op(), spec)
        took = time.perf_counter() - began
        if done.exit_code != 0:
            raise RuntimeError(f"wrong result: {done}")
        return took

    async def _actor(self) -> float:
        data = await self._bus.codec.encode(SandboxRequest(op=new_op(), action=Exec(argv=ARGV)))
        began = time.perf_counter()
        request = await self._bus.codec.sandbox_request(data)
        done = await self._requests.do(SANDBOX, request, sequence=1, fresh=True)
        result = msgspec.Raw(msgspec.json.encode(done))
        await self._bus.codec.encode(SandboxReply(op=request.op, result=result))
        took = time.perf_counter() - began
        if done.exit_code != 0:
            raise RuntimeError(f"wrong result: {done}")
        return took


async def opened() -> lab_desk.Handler:
    settings = Settings.from_env()
    bus = await open_bus(settings, name="bench-sandbox")
    return Parts(bus.bus, await start_sandbox_actor(bus.bus, settings.home))


lab_desk.serve(opened, sys.argv[2])
