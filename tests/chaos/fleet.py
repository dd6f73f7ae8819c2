"""A deployed system in one directory: its own server, replicas of the actors, an observer."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.evidence import (
    NO_KILLS,
    Effect,
    Kills,
    Outcome,
    RunEvidence,
    judge,
    read_ledger,
    requests_of,
)
from chaos.processes import Program
from chaos.scenarios import Scenario
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer

from sandstream.client import Client
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel


class Fleet:
    """Owns everything it starts; leaving the context ends all of it."""

    def __init__(self, directory: Path, model_url: str) -> None:
        self.directory = directory
        self.ledger = directory / "ledger.jsonl"
        self.server = NatsServer(directory / "nats")
        self.server_kills = 0
        self.replicas: dict[str, list[Program]] = {"harness": [], "worker": []}
        self.seen: dict[int, tuple[str, int, bytes]] = {}
        self._armed: dict[int, tuple[str, int]] = {}
        """Every message that the server delivered to the observer: subject, time, body."""
        self._subjects_seen: set[str] = set()
        self._model_url = model_url
        self._programs: list[Program] = []
        self._numbers = itertools.count()
        self._keeper: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self.directory.mkdir(parents=True)
        try:
            await self._start_server()
            self.client = await Client.connect(self.settings())
            await self._observe()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(program.kill() for program in self._programs))
        if hasattr(self, "_observer"):
            await self._observer.stop(0.0)
        if hasattr(self, "_timers"):
            await self._timers.stop(0.0)
        if hasattr(self, "client"):
            await self.client.close()
        await self._end_server()

    def settings(self) -> Settings:
        """The settings of the local client."""
        return Settings(home=self.directory, nats=self.server.options())

    # --- processes -----------------------------------------------------------------------------

    def env(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "NATS_URL": self.server.url,
            "SANDSTREAM_HOME": str(self.directory),
            "OPENAI_BASE_URL": self._model_url,
            "OPENAI_API_KEY": "none",
            "CHAOS_LEDGER": str(self.ledger),
        }

    async def program(
        self,
        name: str,
        *arguments: str,
        url: str = "",
        more: Mapping[str, str] | None = None,
        **crash: Any,
    ) -> Program:
        """``url``: the server's URL, if it is not reached directly; ``more``: variables."""
        number = next(self._numbers)
        stderr = self.directory / f"{number:03}-{name}-{'-'.join(arguments[:1])}.log"
        program = await Program.start(
            name,
            *arguments,
            env={**self.env(), **({"NATS_URL": url} if url else {}), **(more or {})},
            stderr=stderr,
            **crash,
        )
        self._programs.append(program)
        return program

    async def replica(self, kind: str, **crash: Any) -> Program:
        """Start another replica; when this returns, it is ready, or dead at its crash point."""
        program = await self.program("actor", kind, **crash)
        if await program.line() != "ready":
            await program.wait(5)
            if program.crashed_ns() is None:
                raise AssertionError(f"{kind} did not start: {program.errors()}")
        self.replicas[kind] = [one for one in self.replicas[kind] if one.is_running]
        self.replicas[kind].append(program)
        return program

    async def replicas_of(self, **counts: int) -> None:
        await asyncio.gather(
            *(self.replica(kind) for kind, count in counts.items() for _ in range(count))
        )

    # --- the server ----------------------------------------------------------------------------

    async def _start_server(self) -> None:
        """Start the server, and restart it whenever it is killed."""
        await asyncio.to_thread(self.server.start)
        await asyncio.to_thread(self.server.set_up)
        self._keeper = asyncio.ensure_future(self._keep_server())

    async def _end_server(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self.server.kill()

    def kill_server(self) -> int:
        """kill -9; it is restarted at once. Returns the time of the kill."""
        at = time.time_ns()
        os.kill(self.server.pid, signal.SIGKILL)
        return at

    async def _keep_server(self) -> None:
        """Restart the server on its port and store whenever it is killed."""
        while True:
            if not self.server.is_running:
                self.server_kills += 1
                await asyncio.to_thread(self.server.restart)
                async with self._news:
                    self._news.notify_all()
            await asyncio.sleep(0.02)

    # --- what the log says ---------------------------------------------------------------------

    async def _observe(self) -> None:
        bus = self.client.bus
        prefix = bus.subjects.prefix
        spec = ConsumerSpec(name="observer", filters=[f"{prefix}.run.>"])
        self._observer = Worker(bus, spec, self._on_message, max_in_flight=512)
        await self._observer.start()
        spec = ConsumerSpec(
            name="observer", filters=[f"{prefix}.timer.>"], stream=bus.topology.timers
        )
        self._timers = Worker(bus, spec, self._on_timer, max_in_flight=512)
        await self._timers.start()

    async def _on_timer(self, delivery: Delivery) -> None:
        self._armed[delivery.sequence] = (delivery.subject, delivery.time_ns)
        async with self._news:
            self._news.notify_all()

    async def _on_message(self, delivery: Delivery) -> None:
        self._subjects_seen.add(delivery.subject)
        known = self.seen.setdefault(
            delivery.sequence, (delivery.subject, delivery.time_ns, delivery.data)
        )
        assert known[2] == delivery.data, f"{delivery.sequence} changed"
        async with self._news:
            self._news.notify_all()

    async def until(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until a condition holds; check at each new message and ten times a second."""
        deadline = time.monotonic() + within_s
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{what}: not within {within_s} s")
            async with self._news:
                with_timeout = asyncio.timeout(min(left, 0.1))
                try:
                    async with with_timeout:
                        await self._news.wait()
                except TimeoutError:
                    pass

    async def submit(self, key: str, scenario: Scenario) -> None:
        await self.client.submit("clerk", scenario.input(key), key=key, context={"key": key})

    def is_done(self, key: str) -> bool:
        return self.client.bus.subjects.done(key) in self._subjects_seen

    def armed_ns(self, key: str) -> list[int]:
        stem = f"{self.client.bus.subjects.prefix}.timer.{key}."
        return [at for subject, at in self._armed.values() if subject.startswith(stem)]

    async def events(self, key: str) -> list[LogEvent]:
        return await self.client.bus.log.read(RunId(key))

    async def lost(self, key: str) -> list[str]:
        """Events of the run that were seen in the log but are missing or changed now."""
        stem = f"{self.client.bus.subjects.prefix}.run.{key}."
        now = {event.sequence: event.stored.data for event in await self.events(key)}
        return [
            f"{key}: the event at {sequence} ({subject}) was lost"
            for sequence, (subject, _, data) in self.seen.items()
            if subject.startswith(stem) and now.get(sequence) != data
        ]

    async def all_done(self, keys: list[str], within_s: float) -> list[str]:
        """Wait for the ends of runs; return the keys of those that did not end in time."""
        done = asyncio.gather(*(self._ended(key, within_s) for key in keys))
        return [key for key, ended in zip(keys, await done, strict=True) if not ended]

    async def _ended(self, key: str, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                return isinstance(await self.client.wait(key), RunDone)
        except TimeoutError:
            return False

    def effects(self, key: str) -> list[Effect]:
        return [effect for effect in read_ledger(self.ledger) if effect.key == key]


async def judge_runs(
    outcome: Outcome,
    fleet: Fleet,
    model: ScriptedModel,
    runs: Iterable[tuple[str, Scenario]],
    kills: Kills = NO_KILLS,
) -> None:
    """Judge each run by the evidence of the fleet and the model."""
    for key, scenario in runs:
        evidence = RunEvidence(
            key,
            scenario,
            await fleet.events(key),
            fleet.effects(key),
            requests_of(model.journal, key),
        )
        judge(outcome, evidence, kills)
        outcome.problems.extend(await fleet.lost(key))
        parked = [
            entry for entry in await fleet.client.parked() if f".{key}." in entry.parked.subject
        ]
        outcome.check(not parked, f"{key}: messages were parked: {parked}")
