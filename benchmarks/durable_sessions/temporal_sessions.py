"""(x) Chat sessions beside those of Temporal's demo: message to answer, memory of an idle session.

Both sides have one server with its log in a file, and the same scripted model, whose answer comes
in words 10 ms apart. The agent has no sandbox, so that only the sessions are compared.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import processes
from figures import Figure, Series
from lab import Lab, Program

from sandstream import Agent, Client
from sandstream.sessions import SessionEvent, TextDelta, TurnEnded
from sandstream.settings import Settings
from sandstream.testing import Script, script_for, text
from sandstream.worker import AgentWorker

_AT_ONCE = 8
_WORDS = "This answer is streamed in some pieces, each of a few words, and then it ends."


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    says = text(_WORDS).chunks(4, delta_delay_s=0.01).forever()
    base_url = lab.model(Script(conversations=(script_for("", [says]),)))
    asks, idle = (5, 40) if quick else (20, 200)
    theirs = _Theirs(lab, base_url)
    first_ms, answer_ms, ours_kb = asyncio.run(_ours(lab, base_url, asks, idle))
    their_ms, their_kb = theirs.measured(asks, idle)
    lab.close_programs()
    temporal = Series("temporal", their_ms)
    return [
        Figure(
            benchmark="temporal_sessions",
            measure="message to the first words (Temporal: no stream, the whole answer)",
            unit="ms",
            ours=Series("sandstream", first_ms),
            baseline=temporal,
            wanted_ratio=1.0,
        ),
        Figure(
            benchmark="temporal_sessions",
            measure="message to the whole answer",
            unit="ms",
            ours=Series("sandstream", answer_ms),
            baseline=temporal,
            wanted_ratio=1.0,
        ),
        Figure(
            benchmark="temporal_sessions",
            measure=f"memory of all processes per idle session, {idle} sessions",
            unit="KB",
            ours=Series("sandstream", [ours_kb]),
            baseline=Series("temporal", [their_kb]),
            wanted_ratio=1.0,
        ),
    ]


class _Theirs:
    def __init__(self, lab: Lab, base_url: str) -> None:
        home = lab.home()
        self._program: Program = lab.start(
            "temporal_sessions", "temporal", base_url=base_url, home=home
        )

    def measured(self, asks: int, idle: int) -> tuple[list[float], float]:
        """Milliseconds to answers, and the growth of all processes per session."""
        pids = list(self._program.ask(do="pids").values())
        self._begin([f"warm-{number}" for number in range(20)])
        took = [self._program.ask(do="ask", name="warm-0", text="Hello.") for _ in range(asks)]
        assert all(it["answer"] == _WORDS for it in took)
        before = _memory_mb(pids)
        self._begin([f"idle-{number}" for number in range(idle)])
        return [it["ms"] for it in took], (_memory_mb(pids) - before) * 1024 / idle

    def _begin(self, names: list[str]) -> None:
        self._program.ask(do="begin", names=names, text="Hello.", at_once=_AT_ONCE)


async def _ours(
    lab: Lab, base_url: str, asks: int, idle: int
) -> tuple[list[float], list[float], float]:
    home = lab.home()
    programs = [
        lab.start(kind, "sandstream", base_url=base_url, home=home)
        for kind in ("measured_sessions_actor", "harness")
    ]
    for program in programs:
        await asyncio.to_thread(program.wait_ready)
    pids = [os.getpid(), *(it.pid for it in programs), lab.server_pids(home)[0]]
    async with _desk(Settings.from_env(lab.environment(base_url, home))) as client:
        await _begin(client, [f"warm-{number}" for number in range(20)])
        took = [await _timed(client, "warm-0") for _ in range(asks)]
        before = _memory_mb(pids)
        await _begin(client, [f"idle-{number}" for number in range(idle)])
        grown_kb = (_memory_mb(pids) - before) * 1024 / idle
    return [first for first, _ in took], [answer for _, answer in took], grown_kb


@asynccontextmanager
async def _desk(settings: Settings) -> AsyncIterator[Client]:
    """The callers, with the worker in their process, as on the other side."""
    async with await Client.connect(settings) as client:
        agent = Agent(name="talker", instructions="Talk.", model="gpt-4.1")
        worker = AgentWorker(client.bus, {agent.name: agent}, pool="bench")
        await worker.start()
        try:
            yield client
        finally:
            await worker.stop()


async def _begin(client: Client, names: list[str]) -> None:
    free = asyncio.Semaphore(_AT_ONCE)

    async def begin(name: str) -> None:
        async with free:
            session = await client.sessions.create("talker", id=name)
            assert await (await session.send("Hello.")).answer() == _WORDS

    await asyncio.gather(*(begin(name) for name in names))


async def _timed(client: Client, name: str) -> tuple[float, float]:
    """Milliseconds to the first words of an answer, and to the recorded turn."""
    session = await client.sessions.get(name)
    first_ms = 0.0
    async with aclosing(session.follow()) as events:
        await anext(events)  # it follows
        began = time.perf_counter()
        await session.send("Hello.")
        async for event in events:
            passed_ms = (time.perf_counter() - began) * 1000
            if not first_ms and isinstance(event, TextDelta):
                first_ms = passed_ms
            if _is_end(event):
                return first_ms, passed_ms
    raise RuntimeError(f"the follower of {name} has ended")


def _is_end(event: SessionEvent) -> bool:
    return isinstance(event, TurnEnded)


def _memory_mb(pids: list[int]) -> float:
    return sum(processes.rss_mb(pid) for pid in pids)
