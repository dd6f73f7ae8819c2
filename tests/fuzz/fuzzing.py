"""One fuzzing session: hostile messages while honest runs go on, then the judgement."""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz.accounting import Accounts, consumers_of
from fuzz.honest_runs import HonestRuns, scripted_crew
from fuzz.installation import Installation
from fuzz.shots import PREFIX, Gun, Names, Shot, is_readable
from fuzz.wire import Ack, Wire
from sandstream_bus.nats.subscription import CoreMessage

MAX_BACKLOG = 2_000
"""The fuzzer waits while actors have more than this before them: it tests them, not their queue."""
SETTLE_S = 150.0
"""A message that is tried ten times is parked after about two minutes."""


_NUMBERS = re.compile(r"\b(z|own-|h-\w+-)?[0-9a-f]{2,}\b|\d+")


@dataclass
class Report:
    """What was seen."""

    seed: int
    accounts: Accounts = field(default_factory=Accounts)
    sent: int = 0
    seconds: float = 0.0
    quiet_s: float = 0.0
    plain_s: list[float] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    rss_mb: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """A plain run under fire, against a quiet one; medians."""
        return statistics.median(self.plain_s) / self.quiet_s if self.plain_s else 0.0

    def growth_mb(self) -> dict[str, float]:
        """How much each process grew per 10,000 messages, after the first fifth."""
        later = [it for it in self.rss_mb if it[0] >= self.sent / 5]
        if len(later) < 4:
            return {}
        half = len(later) // 2
        apart = _mean([it[0] for it in later[half:]]) - _mean([it[0] for it in later[:half]])
        return {
            name: (
                _mean([it[1][name] for it in later[half:] if name in it[1]])
                - _mean([it[1][name] for it in later[:half] if name in it[1]])
            )
            / apart
            * 10_000
            for name in later[0][1]
        }

    def lines(self) -> list[str]:
        p95 = sorted(self.plain_s)[int(len(self.plain_s) * 0.95)] if self.plain_s else 0.0
        acknowledged = self.accounts.acknowledged
        growth = self.growth_mb().items()
        return [
            f"seed {self.seed}: {self.sent} messages sent in {self.seconds:.0f} s, "
            f"{acknowledged} acknowledged, {len(self.accounts.per_family)} families stored",
            "what became of them: "
            + ", ".join(f"{fate} {count}" for fate, count in self.accounts.fates.most_common()),
            "honest runs: " + ", ".join(f"{it} {count}" for it, count in self.runs.items()),
            f"a plain run: quiet {self.quiet_s * 1000:.0f} ms, under fire "
            f"{self.ratio * self.quiet_s * 1000:.0f} ms (median), {p95 * 1000:.0f} ms (p95), "
            f"ratio {self.ratio:.1f}",
            "growth per 10,000 messages: "
            + ", ".join(f"{name} {mb:+.1f} MB" for name, mb in growth),
            *self._sizes(),
            f"problems: {len(self.problems)}",
            *self._grouped(),
        ]

    def _sizes(self) -> list[str]:
        """The memory of each process at some moments: growth that ends, or does not."""
        step = max(1, len(self.rss_mb) // 8)
        return [
            f"  after {sent}: " + ", ".join(f"{name} {mb:.0f} MB" for name, mb in sizes.items())
            for sent, sizes in self.rss_mb[::step]
        ]

    def _grouped(self) -> list[str]:
        """Problems that differ only in names and numbers, told once."""
        alike: dict[str, list[str]] = {}
        for problem in self.problems:
            alike.setdefault(_NUMBERS.sub("#", problem)[:110], []).append(problem)
        return [f"{len(some)} x {some[0]}" for some in alike.values()][:40]


async def fuzz(
    directory: Path,
    *,
    seed: int,
    messages: int,
    within_s: float,
    per_second: float = 400.0,
    is_brief: bool = False,
) -> Report:
    """Send messages until so many are acknowledged, or the time is over. ``is_brief``: that they
    are fewer then is no problem, because the machine may be slow.
    """
    report = Report(seed)
    with scripted_crew() as model:
        async with Installation(directory, model.base_url) as installation:
            session = _Session(installation, report, is_brief=is_brief)
            await session.run(messages, within_s, per_second)
    return report


class _Session:
    def __init__(self, installation: Installation, report: Report, *, is_brief: bool) -> None:
        self._is_brief = is_brief
        self._installation = installation
        self._report = report
        self._accounts = report.accounts
        self._rng = Random(report.seed)
        self._open: set[asyncio.Future[Ack]] = set()

    async def run(self, messages: int, within_s: float, per_second: float) -> None:
        installation, report = self._installation, self._report
        names = Names(
            nodes=(installation.node,),
            consumers=("harness-main", "starts-main", "tasks-main", "tools-crew", "memory", "asks"),
        )
        gun = Gun(report.seed, names)
        honest = HonestRuns(installation, gun.honest.append)
        report.quiet_s = await honest.quiet_s()
        recording = await installation.client.bus.connection.subscribe(
            f"{PREFIX}.run.>", lambda message: _record(gun, message)
        )
        began = time.monotonic()
        running = asyncio.ensure_future(honest.keep_running())
        own = asyncio.ensure_future(self._own_runs(gun))
        try:
            async with asyncio.timeout(within_s):
                await self._shoot(gun, messages, per_second)
        except TimeoutError:
            if self._accounts.acknowledged < messages and not self._is_brief:
                report.problems.append(
                    f"only {self._accounts.acknowledged} of {messages} messages were acknowledged "
                    f"within {within_s:.0f} s"
                )
        finally:
            report.seconds = time.monotonic() - began
            own.cancel()
            honest.stop()
            await asyncio.gather(own, running, return_exceptions=True)
            await recording.close()
        if running.exception() is not None:
            raise running.exception() or AssertionError
        await self._settle()
        honest.judge_effects()
        report.plain_s, report.runs = honest.times_s, dict(honest.done)
        report.problems += honest.problems
        report.problems += [f"{name} is dead" for name in installation.dead()]
        report.problems += installation.bad_lines()
        report.problems += await self._accounts.close(installation)

    async def _own_runs(self, gun: Gun) -> None:
        """Runs of the fuzzer's own, as targets of valid forgeries."""
        client = self._installation.client
        while True:
            key = f"own-{uuid.uuid4().hex[:10]}"
            agent, text = self._rng.choice((("plain", "[plain]"), ("clerk", "[approval]")))
            await client.submit(agent, f"{text} {key}", key=key, context={"key": key})
            gun.own.append(key)
            await asyncio.sleep(0.5)

    async def _shoot(self, gun: Gun, messages: int, per_second: float) -> None:
        wire = await Wire.open(self._installation.server.port)
        began, report = time.monotonic(), self._report
        try:
            while self._accounts.acknowledged < messages:
                await self._send(wire, gun.next())
                report.sent += 1
                if report.sent % 10 == 0:
                    await asyncio.sleep(
                        max(0.0, began + report.sent / per_second - time.monotonic())
                    )
                if report.sent % 500 == 0:
                    await self._wait_for_actors()
                    report.rss_mb.append((report.sent, self._installation.rss_mb()))
            await asyncio.gather(*self._open)
        finally:
            await wire.close()

    async def _send(self, wire: Wire, shot: Shot) -> None:
        if shot.is_core or shot.reply:
            await wire.send(shot.subject, shot.data, shot.headers, shot.reply)
            self._accounts.sent_without_answer(shot)
            return
        ack = await wire.publish(shot.subject, shot.data, shot.headers)
        self._open.add(ack)
        ack.add_done_callback(lambda it: self._accounts.answered(shot, it.result()))
        ack.add_done_callback(self._open.discard)

    async def _wait_for_actors(self) -> None:
        while sum(it["num_pending"] for it in await self._consumers()) > MAX_BACKLOG:
            await asyncio.sleep(0.1)

    async def _consumers(self) -> list[dict[str, Any]]:
        topology = self._installation.client.bus.topology
        streams = (topology.log, topology.requests, topology.timers)
        return [it for stream in streams for it in await consumers_of(self._installation, stream)]

    async def _settle(self) -> None:
        """Nothing waits, and nothing is delivered again and again."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            left = [
                f"{it['name']}: {it['num_pending']} wait, {it['num_ack_pending']} are worked on, "
                f"{it['num_redelivered']} come again"
                for it in await self._consumers()
                if it["num_pending"] or it["num_ack_pending"] or it["num_redelivered"]
            ]
            if not left:
                return
            if time.monotonic() > deadline:
                self._report.problems += left
                return
            await asyncio.sleep(0.2)


def _record(gun: Gun, message: CoreMessage) -> None:
    with contextlib.suppress(UnicodeError):
        if ".run.h-" in message.subject and is_readable(message.data):
            gun.record(message.subject, message.data, message.headers or {})


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
