"""(w) Sessions that sleep cost log entries; waking one and forking one are quick.

Sessions of an agent with a sandbox take one turn each and are put to sleep. The memory of all
processes is read before, after the first half and after the second. Then some are woken, one with
100 MB of files is forked, and the fork works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import processes
from figures import Figure, Series
from lab import Lab
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sessions import (
    CreateSession,
    DestroySession,
    ForkSession,
    SendMessage,
    SessionRequest,
    SessionState,
    WakeSession,
)

from sandstream import RunConfig
from sandstream.client import Client
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from sandstream.settings import Settings
from sandstream.testing import Script, script_for, text, tool_call
from sandstream.worker import AgentWorker

_AT_ONCE = 16
_FILL = "mkdir files; for n in $(seq {files}); do head -c {size} /dev/urandom > files/$n; done"
_FILES, _FILE_BYTES = 1000, 100_000


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    files = _FILES // 10 if quick else _FILES
    fill = {"cmd": _FILL.format(files=files, size=_FILE_BYTES), "yield_time_ms": 30_000}
    note = tool_call("exec_command", {"cmd": "echo x >> note"})
    script = Script(
        conversations=(
            script_for("fill", [tool_call("exec_command", fill), text("filled"), note, text("ok")]),
        ),
        default=script_for("", [note, text("noted"), note, text("noted again")]),
    )
    home = lab.fast_home()
    base_url = lab.model(script)
    kinds = ("measured_sessions_actor", "measured_sandbox_actor", "harness")
    programs = {
        kind: lab.start(kind, "sandstream", loop=loops[0], base_url=base_url, home=home)
        for kind in kinds
    }
    for program in programs.values():
        program.wait_ready()
    pids = [program.pid for program in programs.values()] + lab.server_pids(home)[:1]
    names = ["sessions actor", "sandbox actor", "harness", "nats-server"]
    settings = Settings.from_env(lab.environment(base_url, home))
    half = 50 if quick else 500

    def read() -> list[float]:
        programs["measured_sessions_actor"].ask(do="collect")
        return [processes.rss_mb(pid) for pid in pids]

    memory, found = asyncio.run(_measured(settings, half, read))
    lab.close_programs()
    return [*_memory(names, half, memory), *_times(found, half, files)]


def _memory(names: list[str], half: int, readings: list[list[float]]) -> list[Figure]:
    before, first, second = readings
    return [
        Figure(
            benchmark="sleeping_sessions",
            measure=f"{name}, growth per sleeping session, {what}",
            unit="KB",
            ours=Series(name, [(after[index] - earlier[index]) * 1024 / half]),
            wanted_at_most=2.0 if name == "sessions actor" and earlier is first else None,
        )
        for index, name in enumerate(names)
        for what, earlier, after in (
            (f"first {half}", before, first),
            (f"next {half}", first, second),
        )
    ]


def _times(found: dict[str, list[float]], half: int, files: int) -> list[Figure]:
    size = f"{files * _FILE_BYTES // 1_000_000} MB"
    rows = {
        "turns": (f"create, one turn, sleep: {2 * half} sessions, each", "ms"),
        "wake": ("wake: from the request to the open workspace", "ms"),
        "answer": ("message to a sleeping session, until its turn is recorded", "ms"),
        "fork": (f"fork of a workspace of {size}", "ms"),
        "fork_bytes": (f"bytes that this fork adds to the object store, {size}", "KB"),
        "fork_turn": (f"first turn of the fork, {size} restored", "ms"),
    }
    return [
        Figure(
            benchmark="sleeping_sessions",
            measure=measure,
            unit=unit,
            ours=Series("sandstream", found[name]),
        )
        for name, (measure, unit) in rows.items()
    ]


async def _measured(
    settings: Settings, half: int, read: Callable[[], list[float]]
) -> tuple[list[list[float]], dict[str, list[float]]]:
    """The readings of memory, and the times."""
    async with _desk(settings) as bus:
        await _begin_all(bus, [f"warm-{number}" for number in range(8)])
        memory = [read()]
        began = time.perf_counter()
        for part in "ab":
            await _begin_all(bus, [f"s-{part}-{number}" for number in range(half)])
            memory.append(read())
        took_ms = (time.perf_counter() - began) * 1000
        found: dict[str, list[float]] = {"turns": [took_ms / (2 * half)]}
        found["wake"] = [await _timed(bus, f"s-a-{n}", WakeSession()) for n in range(10)]
        found["answer"] = [await _answer_ms(bus, f"s-b-{n}") for n in range(10)]
        await _ask(bus, "big", CreateSession(agent="smith", input="fill", idle_s=None))
        await _idle(bus, "big")
        stored = await _object_bytes(bus)
        found["fork"] = [await _timed(bus, "fork", ForkSession(source="big"))]
        found["fork_bytes"] = [(await _object_bytes(bus) - stored) / 1024]
        found["fork_turn"] = [await _answer_ms(bus, "fork")]
        for session in ("big", "fork", *(f"s-a-{n}" for n in range(10))):
            await _ask(bus, session, DestroySession())
        return memory, found


@asynccontextmanager
async def _desk(settings: Settings) -> AsyncIterator[Bus]:
    """The bus, and the worker that serves the agent in the same process."""
    async with await Client.connect(settings) as client:
        agent = SandboxAgent(name="smith", model="gpt-4.1")
        config = RunConfig(sandbox=SandboxRunConfig(UnixLocalSandboxClient()))
        worker = AgentWorker(client.bus, {agent.name: agent}, pool="bench", config=config)
        await worker.start()
        try:
            yield client.bus
        finally:
            await worker.stop()


async def _ask(bus: Bus, session: str, request: SessionRequest) -> SessionState:
    sequence = await bus.sessions.request(session, request)
    return await bus.sessions.applied(session, sequence, timeout_s=120)


async def _timed(bus: Bus, session: str, request: SessionRequest) -> float:
    began = time.perf_counter()
    await _ask(bus, session, request)
    return (time.perf_counter() - began) * 1000


async def _answer_ms(bus: Bus, session: str) -> float:
    began = time.perf_counter()
    await _ask(bus, session, SendMessage(input="note"))
    await _idle(bus, session)
    return (time.perf_counter() - began) * 1000


async def _idle(bus: Bus, session: str) -> None:
    async with asyncio.timeout(120):
        while True:
            state = (await bus.sessions.read(session)).state
            if state is not None and state.active is None and not state.queue:
                if state.status != "completed":
                    raise RuntimeError(f"{session}: {state.status} {state.said}")
                return
            await asyncio.sleep(0.005)


async def _begin_all(bus: Bus, sessions: list[str]) -> None:
    """Create them, a few at a time, and wait until all of them sleep."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def begin(session: str) -> None:
        async with free:
            request = CreateSession(agent="smith", input=f"note in {session}", idle_s=0.05)
            await _ask(bus, session, request)
            async with asyncio.timeout(120):
                while True:
                    state = (await bus.sessions.read(session)).state
                    space = state.workspace if state is not None else None
                    if space is not None and space.box == "asleep":
                        return
                    await asyncio.sleep(0.05)

    await asyncio.gather(*(begin(session) for session in sessions))


async def _object_bytes(bus: Bus) -> int:
    state = await bus.topology.stream_state(bus.connection, f"OBJ_{bus.topology.bucket}")
    return int(state["bytes"])
