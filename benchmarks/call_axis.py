"""The axis of the server's own calls: CPU time of one call, by the number of interleaved runs.

Every run has eight events; event k of all runs comes before event k + 1 of any. The cost of a call
then shows whether the work on one run depends on the number of other runs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec
import processes
from curves import Point
from lab import Lab
from sandstream_bus.bus import Bus
from sandstream_bus.nats.publication import Expect

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings

_KINDS = ("start.past", "model", "call.past", "result.past") + ("model", "call.past") * 2
_BODY = b'{"type":"none","text":"' + b"0123456789abcdef" * 36 + b'"}'
_AT_ONCE = 8
_FILL_AT_ONCE = 500

Call = Callable[[int], Awaitable[Any]]
"""Does something with the run of this number."""


def server_calls(sizes: Sequence[int], *, quick: bool) -> Iterator[Point]:
    """Each call on random runs, eight at once, on a fresh log for each size."""
    for size in sizes:
        with Lab() as lab:
            home = lab.home()
            settings = Settings.from_env(lab.environment("", home))
            yield from asyncio.run(_measure(lab, settings, size, 100 if quick else 500))


async def _measure(lab: Lab, settings: Settings, size: int, times: int) -> list[Point]:
    async with await open_bus(settings, name="bench-calls") as bus:
        runs = _Runs(bus, size)
        await runs.fill()
        server = lab.server_pids(settings.home)[0]
        return [
            Point(
                axis="calls",
                layout="bare server",
                measure=measure,
                size=size,
                value=await _cpu_us(server, call, size, times),
                unit="µs CPU",
            )
            for measure, call in runs.calls().items()
        ]


async def _cpu_us(server: int, call: Call, size: int, times: int) -> float:
    """The server's CPU time per call."""
    chosen = random.Random(size)
    await asyncio.gather(*(call(number) for number in chosen.sample(range(size), _AT_ONCE)))
    spent_s, done = 0.0, 0
    while done < times and spent_s < 4:
        numbers = chosen.sample(range(size), _AT_ONCE)  # each run at most once at a time
        before = processes.threads_cpu_s(server)
        await asyncio.gather(*map(call, numbers))
        spent_s += processes.threads_cpu_s(server) - before
        done += len(numbers)
    return spent_s * 1e6 / done


class _Runs:
    """Interleaved runs in the log, and the calls that can be made for one of them."""

    def __init__(self, bus: Bus, size: int) -> None:
        self._bus = bus
        self._size = size
        self._sequences: list[list[int]] = [[] for _ in range(size)]
        self._published = 0

    async def fill(self) -> None:
        for kind in _KINDS:
            for start in range(0, self._size, _FILL_AT_ONCE):
                numbers = range(start, min(start + _FILL_AT_ONCE, self._size))
                await asyncio.gather(*(self._publish(number, kind) for number in numbers))

    def calls(self) -> dict[str, Call]:
        log = self._bus.topology.log
        direct, stored = f"$JS.API.DIRECT.GET.{log}", f"$JS.API.STREAM.MSG.GET.{log}"
        every = {
            "batch read of run.> from its first event": self._batch(direct, 0),
            "batch read of run.> from its last event but two": self._batch(direct, -3),
            "last event of run.>, from the leader": self._one(
                stored, lambda number: {"last_by_subj": self._all(number)}
            ),
            "last event of run.>, direct": self._one(
                direct, lambda number: {"last_by_subj": self._all(number)}
            ),
            "event by its sequence, direct": self._one(
                direct, lambda number: {"seq": self._sequences[number][3]}
            ),
            "last event of each kind (multi_last run.>)": self._many(
                direct, lambda number: {"multi_last": [self._all(number)]}
            ),
            "stream info with the kinds of run.>": self._one(
                f"$JS.API.STREAM.INFO.{log}", lambda number: {"subjects_filter": self._all(number)}
            ),
        }
        # last: they change the runs
        every["publish"] = lambda number: self._publish(number, "model")
        every["publish if run.> has not moved on"] = self._compare_and_set
        return every

    def _name(self, number: int) -> str:
        return f"{self._bus.subjects.prefix}.run.past-{number:07d}"

    def _all(self, number: int) -> str:
        return f"{self._name(number)}.>"

    async def _publish(self, number: int, kind: str, expect: Expect | None = None) -> None:
        self._published += 1
        ack = await self._bus.connection.publish(
            f"{self._name(number)}.{kind}", _BODY, msg_id=f"p{self._published}", expect=expect
        )
        self._sequences[number].append(ack.seq)

    async def _compare_and_set(self, number: int) -> None:
        expect = Expect(self._sequences[number][-1], self._all(number))
        await self._publish(number, "model", expect)

    def _batch(self, subject: str, first: int) -> Call:
        def query(number: int) -> dict[str, Any]:
            sequence = self._sequences[number][first]
            return {"seq": sequence, "next_by_subj": self._all(number), "batch": 512}

        return self._many(subject, query)

    def _one(self, subject: str, query: Callable[[int], dict[str, Any]]) -> Call:
        async def call(number: int) -> None:
            data = msgspec.json.encode(query(number))
            reply = await self._bus.connection.request(subject, data)
            if not reply.data or b'"error"' in reply.data:
                raise RuntimeError(f"{subject} {data!r}: {reply.headers} {reply.data!r}")

        return call

    def _many(self, subject: str, query: Callable[[int], dict[str, Any]]) -> Call:
        async def call(number: int) -> None:
            data = msgspec.json.encode(query(number))
            messages, end = await self._bus.connection.request_many(subject, data, timeout_s=30)
            if not messages:
                raise RuntimeError(f"{subject} {data!r}: {end.headers}")

        return call
