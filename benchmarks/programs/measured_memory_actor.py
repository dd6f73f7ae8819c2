"""A memory actor in a process of its own, as `sandstream actor memory` starts it, with a lower
priority. Asked to, it writes runs that have ended, waits until their memory is consolidated, reads
it, and opens workspaces with it.

python measured_memory_actor.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import lab_desk
import msgspec
from msgspec import Raw
from sandstream_actors.memory.freshness import is_settled
from sandstream_actors.memory.scope.files import load
from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.memories import MergeRequested
from sandstream_bus.wire.memory_specs import MemoryPart, MemoryUse
from sandstream_bus.wire.messages import ModelAnswered, RunDone, RunStarted, TokenUsage
from sandstream_bus.wire.sandboxes import (
    Close,
    MemoryMount,
    Open,
    SandboxRequest,
    SandboxSpec,
    SandboxUse,
)
from sandstream_bus.wire.specs import AgentSpec, GraphSpec
from sandstream_bus.wire.subjects import RunId

from sandstream._run.memory_host import start_memory_actor
from sandstream._surface.connection import open_bus
from sandstream.models.defaults import DefaultModels
from sandstream.settings import Settings

_kept: list[Any] = []
_AT_ONCE = 64
_LOOK_S = 0.02
_ASK_AGAIN_S = 2.0


class Memories:
    """What is asked for."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._asked = 0

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        method = getattr(self, f"do_{request.pop('do')}")
        answer: dict[str, Any] = await method(**request)
        return answer

    async def do_end_runs(
        self, texts: list[str], scopes: list[str], first: int, use: dict[str, Any]
    ) -> dict[str, Any]:
        """A run has ended for each text; the scopes take turns."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int, text: str) -> None:
            async with gate:
                scope = scopes[number % len(scopes)]
                memory = msgspec.convert({**use, "scope": scope}, MemoryUse)
                await _write(self._bus, f"past-{first + number}", text, memory)

        await asyncio.gather(*(one(number, text) for number, text in enumerate(texts)))
        return {}

    async def do_settle(self, scopes: list[str], runs: int) -> dict[str, Any]:
        """Have all of it consolidated, and wait for that."""
        began = time.perf_counter()
        for scope in scopes:
            await self._settle(scope, runs // len(scopes))
        return {"wall_s": time.perf_counter() - began}

    async def _settle(self, scope: str, runs: int) -> None:
        asked_at = 0.0
        while True:
            state = (await self._bus.memories.read(scope)).state
            rollouts = state.rollouts.values()
            if len(rollouts) >= runs and is_settled(state):
                if problems := [it.problem for it in rollouts if it.problem]:
                    raise RuntimeError(f"{scope}: {problems[0]}")
                if state.merge_problem:
                    raise RuntimeError(f"{scope}: {state.merge_problem}")
                return
            is_noted = len(rollouts) >= runs
            if is_noted and time.monotonic() > asked_at + _ASK_AGAIN_S:
                asked_at = time.monotonic()
                await self._ask(scope)
            await asyncio.sleep(_LOOK_S)

    async def _ask(self, scope: str) -> None:
        self._asked += 1
        await self._bus.memories.send(
            self._bus.subjects.memory_merge(scope),
            MergeRequested(reason="asked"),
            msg_id=f"bench-ask-{os.getpid()}-{self._asked}",
        )

    async def do_phases(self) -> dict[str, Any]:
        """How many runs of each phase there were in all, and how many answers of a model."""
        found = dict[str, int]()
        for step in ("extract", "merge"):
            runs, answers = set[str](), 0
            stem = f"{self._bus.subjects.prefix}.run."
            subjects = await self._bus.topology.subjects_of(
                self._bus.connection, self._bus.topology.log, f"{stem}*.start.*"
            )
            runs = {str(self._bus.subjects.parse_run(it).run) for it in subjects}
            for run in (it for it in runs if it.startswith(f"memory-{step}-")):
                events = await self._bus.log.read(RunId(run))
                answers += sum(isinstance(it.event, ModelAnswered) for it in events)
                found[f"{step}_runs"] = found.get(f"{step}_runs", 0) + 1
            found[f"{step}_answers"] = answers
        return found

    async def do_read(self, scope: str) -> dict[str, Any]:
        """The handbook, and the size of all files."""
        state = (await self._bus.memories.read(scope)).state
        files = await load(self._bus, scope, state.tree)
        return {
            "handbook": files.get("memories/MEMORY.md", b"").decode(),
            "bytes": sum(map(len, files.values())),
            "sessions": sum(path.startswith("sessions/") for path in files),
            "merges": state.merges,
            "rollouts": len(state.rollouts),
        }

    async def do_open(self, scope: str) -> dict[str, Any]:
        """Open a new workspace; with a memory if one is named."""
        mounts = [MemoryMount(scope=scope)] if scope else []
        self._asked += 1
        sandbox = f"bench-{os.getpid()}-{self._asked}"
        began = time.perf_counter()
        await self._request(sandbox, Open(spec=SandboxSpec(memories=mounts)))
        wall_s = time.perf_counter() - began
        await self._request(sandbox, Close(checkpoint=False, delete=True))
        return {"wall_s": wall_s}

    async def _request(self, sandbox: str, action: Any) -> None:
        request = SandboxRequest(op=new_op(), action=action)
        reply = await self._bus.sandboxes.request(sandbox, request, provider="local")
        if reply.error is not None:
            raise RuntimeError(reply.error)


async def _write(bus: Bus, run: str, text: str, use: MemoryUse) -> None:
    """The log of a run that had one turn."""
    agent = AgentSpec(
        name="a", host="past", model="scripted", memory=use, sandbox=SandboxUse(id="past")
    )
    started = RunStarted(
        graph=GraphSpec(start="a", agents={"a": agent}),
        input=[_raw({"role": "user", "content": text})],
        pool="past",
    )
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Noted."}],
    }
    done = RunDone(
        status="completed",
        agent="a",
        turns=1,
        usage=TokenUsage(),
        output=_raw("Noted."),
        memory=MemoryPart(scope=use.scope, id=run),
    )
    answered = ModelAnswered(turn=1, agent="a", output=[_raw(said)], usage=TokenUsage())
    after = 0
    for subject, event in (
        (bus.subjects.start(run, "past"), started),
        (bus.subjects.model(run), answered),
        (bus.subjects.done(run), done),
    ):
        msg_id = f"{run}:{subject}"
        after = await bus.log.append(RunId(run), subject, event, after=after, msg_id=msg_id)


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


async def opened() -> lab_desk.Handler:
    os.nice(10)
    connection = await open_bus(Settings.from_env(), name="bench-memory")
    memory = await start_memory_actor(connection.bus, DefaultModels())
    _kept.extend((connection, memory))
    return Memories(connection.bus)


lab_desk.serve(opened, sys.argv[2])
