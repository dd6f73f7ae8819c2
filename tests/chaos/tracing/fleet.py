"""A deployed system of cooperating agents, with tracing actors that read its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chaos.composition.fleet import CompositionFleet
from chaos.composition.scenarios import CHAIN, CLAIM, TREE, Plan
from chaos.processes import Program
from chaos.tracing.evidence import (
    Judgement,
    all_runs,
    expected,
    judge_received,
    judge_stores,
)
from sandstream_actors.tracing.store.queries import TraceReader
from support.tracing.otlp_receiver import OtlpReceiver
from support.tracing.traced_log import caught_up
from support.waiting import eventually

PLANS = (CHAIN, CLAIM, TREE)
"""Handoffs, an approval, child runs."""


def keyed(number: int, *plans: Plan) -> list[tuple[str, Plan]]:
    """This many runs of each plan."""
    return [(f"{plan.label}-{count}", plan) for count in range(number) for plan in plans]


class TracingFleet(CompositionFleet):
    """Tracers are not replicas of the fleet: nothing waits for them."""

    @property
    def programs(self) -> list[Program]:
        """Everything that was started."""
        return self._programs

    def store(self, name: str) -> Path:
        return self.directory / f"{name}.db"

    async def tracer(
        self,
        receiver: OtlpReceiver | None = None,
        *,
        group: str = "main",
        store: str = "traces",
        is_awaited: bool = True,
        **crash: Any,
    ) -> Program:
        """Start one tracing actor; when this returns, it is ready if that is awaited, or dead at
        its crash point.
        """
        arguments = ("--group", group, "--store", str(self.store(store)))
        number = next(self._numbers)
        program = await Program.start(
            "tracing_actor",
            *arguments,
            env=self.env() | ({} if receiver is None else receiver.environment()) | _TRACES_ONLY,
            stderr=self.directory / f"{number:03}-tracing-{group}.log",
            **crash,
        )
        self._programs.append(program)
        if is_awaited:
            said = await program.line()
            if said:
                assert json.loads(said)["group"] == group
                return program
            await program.wait(5)
            if program.crashed_ns() is None:
                raise AssertionError(f"tracing did not start: {program.errors()}")
        return program

    async def load(self, keys: list[tuple[str, Plan]]) -> None:
        """Begin these runs."""
        for key, plan in keys:
            await self.begin(plan, key)

    async def finish(self, keys: list[tuple[str, Plan]], within_s: float = 60.0) -> None:
        """Approve everything, and wait for the ends."""
        for key, plan in keys:
            if plan is CLAIM:
                await self.approve_all(key)
        late = await self.all_done([key for key, _ in keys], within_s)
        assert not late, f"not done within {within_s} s: {late}"

    async def settled(self, *stores: str, group: str = "main", within_s: float = 40.0) -> None:
        """Wait until a group has read everything, and everything is exported."""
        await caught_up(self.client.bus, group, within_s=within_s)
        for store in stores:

            async def is_empty(store: str = store) -> bool:
                reader = await TraceReader.open_to_read(self.store(store))
                if reader is None:
                    return False
                try:
                    return (await reader.counters())["outbox"] == 0
                finally:
                    await reader.close()

            await eventually(is_empty, within_s=within_s, what=f"all of {store} is exported")

    async def judge(self, *stores: str, receiver: OtlpReceiver | None = None) -> Judgement:
        """Compare the stores and the endpoint with the log."""
        bus = self.client.bus
        judgement = Judgement()
        wanted = await expected(bus, await all_runs(bus))
        readers = [await TraceReader.open_to_read(self.store(store)) for store in stores]
        try:
            opened = [reader for reader in readers if reader is not None]
            await judge_stores(judgement, wanted, opened)
        finally:
            for reader in readers:
                if reader is not None:
                    await reader.close()
        if receiver is not None:
            judge_received(judgement, wanted, receiver.spans)
        parked = await self.client.parked()
        judgement.check(not parked, f"messages were parked: {parked}")
        return judgement


_TRACES_ONLY = {"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_TIMEOUT": "5"}
