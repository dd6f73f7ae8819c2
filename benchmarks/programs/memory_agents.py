"""Sandbox agents that remember, the same on either side.

    python memory_agents.py sandstream|agents asyncio|uvloop

The baseline makes memories when a sandbox closes, in the process of the caller. Ours are made by a
memory actor in another process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import lab_desk

SIDE = sys.argv[1]
MODEL = "gpt-4.1"

if SIDE == "agents":
    from agents import RunConfig, Runner
    from agents.sandbox import MemoryGenerateConfig, SandboxAgent, SandboxRunConfig
    from agents.sandbox.capabilities import Filesystem, Memory, Shell
    from agents.sandbox.sandboxes import UnixLocalSandboxClient
else:
    from sandstream import RunConfig, Runner
    from sandstream.sandbox import MemoryGenerateConfig, SandboxAgent, SandboxRunConfig
    from sandstream.sandbox.capabilities import Filesystem, Memory, Shell
    from sandstream.sandbox.sandboxes import UnixLocalSandboxClient


def agent_of(*memory: Any) -> Any:
    return SandboxAgent(
        name="Worker",
        instructions="Work.",
        model=MODEL,
        capabilities=[Shell(), Filesystem(), *memory],
    )


class Agents:
    """What is measured. Each result is looked at."""

    def __init__(self) -> None:
        self._client = UnixLocalSandboxClient()
        self._sessions: dict[str, list[Any]] = {}

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        method = getattr(self, f"do_{request.pop('do')}")
        answer: dict[str, Any] = await method(**request)
        return answer

    async def do_own(self, memory: bool) -> dict[str, Any]:
        """One run with a sandbox of its own, which closes with it."""
        agent = agent_of(*([Memory()] if memory else []))
        config = RunConfig(sandbox=SandboxRunConfig(client=self._client))
        began = time.perf_counter()
        await _checked(agent, config)
        return {"wall_s": time.perf_counter() - began}

    async def do_open(self, names: list[str], count: int) -> dict[str, Any]:
        """So many sessions for each name."""
        for name in names:
            self._sessions[name] = [await self._client.create() for _ in range(count)]
            for session in self._sessions[name]:
                await session.start()
        return {}

    async def do_runs(self, name: str, generates: bool, runs: int) -> dict[str, Any]:
        """So many runs one after the other in each of its sessions, which work at once."""
        generate = MemoryGenerateConfig(quiet_seconds=1.0) if generates else None
        agent = agent_of(Memory(scope=name, generate=generate))

        async def one(session: Any) -> None:
            config = RunConfig(sandbox=SandboxRunConfig(session=session))
            for _ in range(runs):
                await _checked(agent, config)

        began = time.perf_counter()
        await asyncio.gather(*map(one, self._sessions[name]))
        return {"wall_s": time.perf_counter() - began}

    async def do_close(self) -> dict[str, Any]:
        for sessions in self._sessions.values():
            await asyncio.gather(*(self._client.delete(it) for it in sessions))
        return {}


async def _checked(agent: Any, config: Any) -> None:
    result = await Runner.run(agent, "Work, please.", run_config=config)
    if result.final_output != "done":
        raise RuntimeError(f"wrong result: {result}")


async def opened() -> lab_desk.Handler:
    return Agents()


lab_desk.serve(opened, sys.argv[2])
