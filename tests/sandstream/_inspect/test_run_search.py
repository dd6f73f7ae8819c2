"""Runs are found by agent, time, text and metadata; a search says how far it looked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import (
    ParentLink,
    PastEvent,
    RunDone,
    RunReopened,
    RunRestored,
    RunStarted,
)
from sandstream_bus.wire.specs import AgentSpec, GraphSpec, RunOptions
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import done

from sandstream._inspect.run_filter import RunFilter, run_filter
from sandstream._inspect.run_lists import RunList, sequence_before
from sandstream._inspect.run_search import search_runs
from sandstream.exceptions import UserError


def begin(
    text: str = "hello", *, agent: str = "a", parent: str = "", **metadata: Any
) -> RunStarted:
    link = ParentLink(run=parent, call="t1-0", turn=1, pool="main", root=parent)
    return RunStarted(
        pool="main",
        graph=GraphSpec(start=agent, agents={agent: AgentSpec(name=agent, host="h", model="m")}),
        input=[Raw(msgspec.json.encode({"role": "user", "content": text}))],
        options=RunOptions(metadata=metadata),
        parent=link if parent else None,
    )


def end(output: Any = "end", **changes: Any) -> RunDone:
    return msgspec.structs.replace(done(msgspec.json.encode(output)), **changes)


async def put(bus: Bus, run: str, first: RunStarted, last: RunDone | None = None) -> None:
    subjects = bus.subjects
    start = subjects.start(run, "main")
    at = await bus.log.append(RunId(run), start, first, after=0, msg_id=f"{run}:0")
    if last is not None:
        await bus.log.append(RunId(run), subjects.done(run), last, after=at, msg_id=f"{run}:1")
        await bus.open_runs.leave(run)


async def names(bus: Bus, wanted: RunFilter, **how: Any) -> list[str]:
    return [it.run_id for it in (await found(bus, wanted, **how)).runs]


async def found(bus: Bus, wanted: RunFilter, *, limit: int = 10, **how: Any) -> RunList:
    return await search_runs(bus, wanted, limit=limit, **how)


def test_each_filter_and_all_together(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await put(bus, "r1", begin("Where is Order 17?", customer="17", tier=3), end("sent"))
            bern = end({"city": "BERN"}, agent="b")
            await put(bus, "r2", begin("Hi", agent="b", customer="17"), bern)
            failed = end(None, status="failed", agent="b")
            await put(bus, "r3", begin("order 18", customer="18", vip=True), failed)
            await put(bus, "r4", begin("order 19", customer="18"))
            await put(bus, "child", begin("order 20", parent="r1"), end())
            assert await names(bus, run_filter(agent="a")) == ["child", "r4", "r3", "r1"]
            # one that was handed over is with both
            assert await names(bus, run_filter(agent="b")) == ["r3", "r2"]
            assert await names(bus, run_filter(text="ORDER")) == ["child", "r4", "r3", "r1"]
            assert await names(bus, run_filter(text="bern")) == ["r2"]
            assert await names(bus, run_filter(metadata={"customer": "17"})) == ["r2", "r1"]
            assert await names(bus, run_filter(metadata={"customer": "17", "tier": "3"})) == ["r1"]
            assert await names(bus, run_filter(metadata={"vip": "true"})) == ["r3"]
            assert await names(bus, run_filter(metadata={"vip": "yes"})) == []
            assert await names(bus, run_filter(text="order", status="failed")) == ["r3"]
            assert await names(bus, run_filter(text="order", status="running")) == ["r4"]
            together = run_filter(text="order", agent="a", metadata={"customer": "18"})
            assert await names(bus, together) == ["r4", "r3"]
            assert await names(bus, together, limit=1) == ["r4"]
            assert await names(bus, run_filter(agent="a"), which="top_level") == ["r4", "r3", "r1"]
            summary = (await found(bus, run_filter(text="17?"))).runs[0]
            assert summary.metadata == {"customer": "17", "tier": 3}

    asyncio.run(main())


def test_times_bound_what_is_read(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            times: list[datetime] = []
            for number in range(5):
                times.append(datetime.now(UTC))
                await put(bus, f"r{number}", begin(), end())
            for number, time in enumerate(times):
                assert await sequence_before(bus, time) == 2 * number
            assert await sequence_before(bus, datetime.now(UTC)) == 10
            assert await names(bus, run_filter(since=times[3])) == ["r4", "r3"]
            assert await names(bus, run_filter(until=times[2])) == ["r1", "r0"]
            between = await found(bus, run_filter(since=times[1], until=times[3]))
            assert [it.run_id for it in between.runs] == ["r2", "r1"]
            assert (between.looked_at, between.has_more) == (2, False)
            assert await names(bus, run_filter(since=timedelta(hours=1)), limit=2) == ["r4", "r3"]
            assert await names(bus, run_filter(until=timedelta(hours=1))) == []

    asyncio.run(main())


def test_a_search_is_bounded_and_says_so(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandstream._inspect.run_search.LOOK_BACK_EVENTS", 20)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await put(bus, "old", begin("rare"), end())
            for number in range(30):
                await put(bus, f"r{number:02}", begin(), end())
            wanted = run_filter(text="rare")
            bounded = await found(bus, wanted)
            assert (bounded.runs, bounded.has_more, bounded.looked_at) == ([], True, 10)
            first = await bus.log.read(RunId("r20"))
            assert bounded.back_to == first[0].stored.time
            told: list[tuple[int, int]] = []
            every = await found(bus, wanted, look_at_all=True, progress=lambda *it: told.append(it))
            assert [it.run_id for it in every.runs] == ["old"] and not every.has_more
            assert told == [(62, 62)]
            enough = await found(bus, run_filter(text="hello"), limit=3)
            assert len(enough.runs) == 3 and not enough.has_more
            # the bound counts from --until, not from the end of the log
            early = run_filter(text="rare", until=datetime.fromisoformat(first[0].stored.time))
            assert (await found(bus, early)).looked_at == 10

            asked: list[datetime | None] = []

            async def older(before: datetime | None) -> AsyncIterator[list[str]]:
                asked.append(before)
                yield ["r00", "forgotten"]
                yield ["old"]

            told_by_others = await found(bus, wanted, older=older)
            assert [it.run_id for it in told_by_others.runs] == ["old"]
            assert asked == [datetime.fromisoformat(bounded.back_to)]

    asyncio.run(main())


def test_open_runs_are_looked_at_up_to_a_bound(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandstream._inspect.run_search.LOOK_AT_OPEN", 5)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await put(bus, "old", begin("rare"))
            for number in range(8):
                await put(bus, f"r{number}", begin())
            wanted = run_filter(status="running", text="rare")
            bounded = await found(bus, wanted)
            assert (bounded.runs, bounded.has_more) == ([], True)
            assert await names(bus, wanted, look_at_all=True) == ["old"]

    asyncio.run(main())


def test_restored_and_refused_runs_are_found(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            subjects = bus.subjects
            body = Raw(msgspec.json.encode(begin("from a state", customer="17")))
            past = PastEvent(subject=subjects.start("saved", "main"), body=body, sequence=1)
            restored = RunRestored(events=[past], pool="main", host="h")
            start = subjects.start("saved", "main")
            await bus.log.append(RunId("saved"), start, restored, after=0, msg_id="s0")
            refused = end(None, status="failed", turns=0, agent="ghost")
            await bus.log.append(
                RunId("refused"), subjects.done("refused"), refused, after=0, msg_id="r0"
            )
            assert await names(bus, run_filter(metadata={"customer": "17"})) == ["saved"]
            assert await names(bus, run_filter(text="a state")) == ["saved"]
            assert await names(bus, run_filter(agent="ghost")) == ["refused"]

    asyncio.run(main())


def test_a_run_that_was_opened_again_is_as_it_is_now(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            subjects = bus.subjects
            await put(bus, "again", begin("x"), end(None, status="failed"))
            last = (await bus.log.read(RunId("again")))[-1].sequence
            turn = subjects.turn("again", "main")
            opened = RunReopened(reason="re-driven")
            at = await bus.log.append(RunId("again"), turn, opened, after=last, msg_id="o")
            for status in ("failed", "completed"):
                assert await names(bus, run_filter(text="x", status=status)) == []
            assert await names(bus, run_filter(text="x")) == ["again"]
            assert await names(bus, run_filter(text="x", status="running")) == ["again"]
            final = end("at last")
            await bus.log.append(
                RunId("again"), subjects.done("again"), final, after=at, msg_id="d"
            )
            await bus.open_runs.leave("again")
            assert await names(bus, run_filter(text="at last", status="completed")) == ["again"]
            assert await names(bus, run_filter(text="x", status="failed")) == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"status": "sleepy"}, "there is no status 'sleepy'"),
        ({"agent": " "}, "agent must not be empty"),
        ({"text": ""}, "text must not be empty"),
        ({"metadata": {"": "x"}}, "a key of the metadata must not be empty"),
        ({"since": datetime(2026, 1, 1)}, "since needs a time zone"),
        ({"until": "2h"}, "until must be a datetime or a timedelta, not str"),
        ({"since": timedelta(hours=-1)}, "since must not be a negative time span"),
        ({"since": datetime(2999, 1, 1, tzinfo=UTC)}, "since is in the future"),
        ({"since": timedelta(1), "until": timedelta(2)}, "must be earlier than until"),
    ],
)
def test_values_that_make_no_sense(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        run_filter(**given)


def test_very_long_ago_is_the_beginning() -> None:
    assert run_filter(since=timedelta.max).since == datetime.min.replace(tzinfo=UTC)
