"""(x) The terminal UI is as quick with 10,000 events as with 100.

``sandstream tui`` runs in a pseudo-terminal and shows a run at work. A key is pressed, or the model
writes a word: the time until the terminal gets that character or word. The baseline is a bare app
of the same library with an input and a log of as many lines; its words come by core NATS, too.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from subprocess import Popen

import msgspec
from figures import Figure, Series
from lab import Lab
from msgspec import Raw
from sandstream_actors.harness.deltas import DeltaSink
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import CallFinished, CallRequested, RunStarted
from sandstream_bus.wire.specs import AgentSpec, GraphSpec
from sandstream_bus.wire.subjects import RunId

from sandstream.client import Client
from sandstream.settings import Settings

_BARE = Path(__file__).resolve().parent.parent / "programs" / "bare_tui.py"
_SUBJECT = "bench.words"
_SIZES = (100, 10_000)
_POOL = "elsewhere"
_LINES, _COLUMNS = 40, 120
_APART_S = 0.15
"""Between two keys or words: the screen is at rest."""
_PATIENCE_S = 120.0
_STEERING = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    repeats = 20 if quick else 100
    environment = lab.environment("http://127.0.0.1:9/v1", lab.fast_home())
    return asyncio.run(_measured(environment, repeats))


async def _measured(environment: dict[str, str], repeats: int) -> list[Figure]:
    ours: dict[tuple[str, int], Series] = {}
    bare: dict[tuple[str, int], Series] = {}
    async with await Client.connect(Settings.from_env(environment)) as client:
        link = client.bus.connection
        for size in _SIZES:
            run = RunId(f"bench-{size}")
            last = await _write(client.bus, run, size)
            sink = DeltaSink(client.bus, run, turn=2)
            command = [sys.executable, "-m", "sandstream.cli", "tui", run]
            raw = [sys.executable, str(_BARE), _SUBJECT, str(size)]

            def say(word: str, sink: DeltaSink = sink) -> None:
                sink(msgspec.json.encode({"type": _DELTA, "delta": f"{word} "}))

            def publish(word: str) -> None:
                link.publish_now(_SUBJECT, [word.encode()])

            async with (
                _terminal(command, environment, f"#{last}") as shown,
                _terminal(raw, environment, "ready") as plain,
            ):
                for kind, act_ours, act_bare in (
                    ("key", shown.type, plain.type),
                    ("word", say, publish),
                ):
                    found: tuple[list[float], list[float]] = ([], [])
                    for number in range(repeats):
                        mark = _mark(kind, number)
                        found[0].append(await shown.time(act_ours, mark))
                        found[1].append(await plain.time(act_bare, mark))
                    ours[kind, size] = Series("sandstream tui", found[0])
                    bare[kind, size] = Series("bare app", found[1])
    return [*_beside(ours, bare), *_growth(ours)]


_DELTA = "response.output_text.delta"


def _mark(kind: str, number: int) -> str:
    """What appears on the screen, and is not there yet."""
    return chr(0x4E00 + number) if kind == "key" else f"w{number:04}q"


def _beside(
    ours: dict[tuple[str, int], Series], bare: dict[tuple[str, int], Series]
) -> Iterator[Figure]:
    for (kind, size), series in ours.items():
        yield Figure(
            benchmark="tui_latency",
            measure=f"{kind} to screen, {size:,} events",
            unit="ms",
            ours=series,
            baseline=bare[kind, size],
        )


def _growth(ours: dict[tuple[str, int], Series]) -> Iterator[Figure]:
    small, big = _SIZES
    for kind in ("key", "word"):
        yield Figure(
            benchmark="tui_latency",
            measure=f"{kind} to screen, {big:,} events compared with {small}",
            unit="ms",
            ours=ours[kind, big],
            baseline=Series(f"{small} events", ours[kind, small].values),
            wanted_ratio=1.5,
        )


async def _write(bus: Bus, run: RunId, events: int) -> int:
    """A run at work with so many events; return the sequence of the last one."""
    agent = AgentSpec(name="a", host="h", model="m")
    graph = GraphSpec(start="a", agents={"a": agent})
    hello = RunStarted(pool=_POOL, graph=graph, input=[Raw(b'{"role":"user","content":"hello"}')])
    await bus.log.send(bus.subjects.start(run, _POOL), hello, msg_id=f"{run}:start")
    last = 0
    for first in range(0, events // 2, 500):
        numbers = range(first, min(first + 500, events // 2))
        await asyncio.gather(
            *(
                bus.log.send(bus.subjects.call(run, _POOL), _asked(n), msg_id=f"{run}:call:{n}")
                for n in numbers
            )
        )
        stored = await asyncio.gather(
            *(
                bus.log.send(
                    bus.subjects.result(run, _POOL), _result(n), msg_id=f"{run}:result:{n}"
                )
                for n in numbers
            )
        )
        last = max(it.seq for it in stored)
    return last


def _asked(number: int) -> CallRequested:
    return CallRequested(
        reply_pool=_POOL,
        call=f"t1-{number}",
        kind="tool",
        turn=1,
        agent="a",
        name="look_up",
        arguments=f'{{"order": {number}}}',
    )


def _result(number: int) -> CallFinished:
    return CallFinished(call=f"t1-{number}", kind="tool", turn=1, output=Raw(b'"sent on Monday"'))


class _Terminal:
    """A pseudo-terminal with a program: it keeps what the program wrote since the last look."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written = b""
        self._more = asyncio.Event()

    def read(self) -> None:
        with suppress(OSError):  # the program has ended
            self._written += os.read(self._descriptor, 1 << 16)
            self._more.set()

    def type(self, character: str) -> None:
        os.write(self._descriptor, character.encode())

    async def sees(self, mark: str) -> None:
        wanted = mark.encode()
        async with asyncio.timeout(_PATIENCE_S):
            while wanted not in _STEERING.sub(b"", self._written):
                self._more.clear()
                await self._more.wait()

    async def time(self, act: Callable[[str], Awaitable[None] | None], mark: str) -> float:
        """How long it takes until something appears, in milliseconds."""
        await asyncio.sleep(_APART_S)
        self._written = b""
        began = time.perf_counter()
        act(mark)
        await self.sees(mark)
        return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def _terminal(command: list[str], environment: dict[str, str], mark: str):  # type: ignore[no-untyped-def]
    """The program in a terminal, once it shows the mark."""
    loop = asyncio.get_running_loop()
    with _process(command, environment | {"TERM": "xterm-256color"}) as descriptor:
        found = _Terminal(descriptor)
        loop.add_reader(descriptor, found.read)
        try:
            await found.sees(mark)
            yield found
        finally:
            loop.remove_reader(descriptor)


@contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    process = Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)
