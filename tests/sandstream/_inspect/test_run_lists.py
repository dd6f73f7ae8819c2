"""Lists come from an index: what they read does not grow with the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.logs.open_runs import entry_of
from sandstream_bus.wire.messages import (
    ApprovalRequested,
    ErrorInfo,
    Message,
    ParentLink,
    RunDone,
    RunReopened,
    RunWaiting,
    TokenUsage,
)
from sandstream_bus.wire.open_runs import OpenRun, Question
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import done, started
from support.waiting import eventually

from sandstream._inspect.run_lists import list_open, list_runs, list_with_status
from sandstream.approvals import open_approvals

FAILED = RunDone(
    status="failed",
    agent="a",
    turns=1,
    usage=TokenUsage(),
    error=ErrorInfo(code="model_behavior", message="no"),
)
ASKED = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c1")


class Writer:
    """Writes runs as actors do, the index included."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._last: dict[str, int] = {}

    async def put(self, run: str, subject: str, message: Message) -> None:
        after = self._last.get(run, 0)
        self._last[run] = await self._bus.log.append(
            RunId(run), subject, message, after=after, msg_id=f"{run}:{after}"
        )

    async def start(self, run: str, parent: str = "") -> None:
        first = started()
        if parent:
            link = ParentLink(run=parent, call="t1-0", turn=1, pool="main", root=parent)
            first = msgspec.structs.replace(first, parent=link)
        await self.put(run, self._bus.subjects.start(run, "main"), first)

    async def end(self, run: str, end: RunDone | None = None) -> None:
        await self.put(run, self._bus.subjects.done(run), end or done())
        await self._bus.open_runs.leave(run)

    async def wait(self, run: str) -> None:
        question = Question(asked=ASKED, since="2026-01-01T00:00:00Z")
        await self._bus.open_runs.note_waiting(
            run, entry_of(started()), self._last[run], [question]
        )
        waiting = RunWaiting(turn=1, approvals=[ASKED])
        await self.put(run, self._bus.subjects.waiting(run), waiting)


async def received(bus: Bus, work: Callable[[], Awaitable[object]]) -> int:
    """How many messages this connection gets from the server meanwhile."""
    before = bus.connection._client.stats["in_msgs"]
    await work()
    return bus.connection._client.stats["in_msgs"] - before


def test_lists_of_open_runs_do_not_read_ended_ones(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            log = Writer(bus)
            await log.start("old")
            await log.start("asks")
            await log.wait("asks")
            lists: dict[str, Callable[[], Awaitable[object]]] = {
                "running": lambda: list_with_status(bus, "running", limit=20),
                "waiting": lambda: list_with_status(bus, "waiting", limit=20),
                "approvals": lambda: open_approvals(bus, limit=20),
            }
            few = {name: await received(bus, work) for name, work in lists.items()}
            for number in range(300):
                await log.start(f"ended-{number}")
                await log.end(f"ended-{number}")
            await eventually(lambda: _holds(bus, 2), what="an index without tombstones")
            assert {name: await received(bus, work) for name, work in lists.items()} == few
            running = (await list_with_status(bus, "running", limit=20)).runs
            assert [it.run_id for it in running] == ["old"]
            waiting = (await list_with_status(bus, "waiting", limit=20)).runs
            assert [it.run_id for it in waiting] == ["asks"]
            assert [it.run_id for it in await open_approvals(bus, limit=20)] == ["asks"]

    asyncio.run(main())


async def _holds(bus: Bus, count: int) -> bool:
    state = await bus.topology.stream_state(bus.connection, bus.topology.open)
    return bool(state["messages"] == count)


def test_the_newest_runs_are_read_from_the_end_of_the_log_only(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            log = Writer(bus)
            for number in range(700):
                await log.start(f"run-{number:03}")
                await log.end(f"run-{number:03}", FAILED if number % 10 == 0 else None)
            newest = await list_runs(bus, limit=3)
            assert [it.run_id for it in newest] == ["run-699", "run-698", "run-697"]
            assert await received(bus, lambda: list_runs(bus, limit=3)) < 1100
            found = await list_with_status(bus, "failed", limit=2)
            assert [it.run_id for it in found.runs] == ["run-690", "run-680"]
            assert not found.has_more
            every = await list_with_status(bus, "failed", limit=100)
            assert len(every.runs) == 70 and every.runs[-1].run_id == "run-000"
            assert every.runs[0].started_at and every.runs[0].ended_at

    asyncio.run(main())


def test_a_list_that_does_not_look_at_all_runs_says_so(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandstream._inspect.run_lists.LOOK_BACK_EVENTS", 100)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            log = Writer(bus)
            await log.start("lost")
            await log.end("lost", FAILED)
            for number in range(100):
                await log.start(f"run-{number:03}")
                await log.end(f"run-{number:03}")
            found = await list_with_status(bus, "failed", limit=5)
            assert found.runs == [] and found.has_more
            assert found.looked_at == 50 and found.back_to
            found = await list_with_status(bus, "failed", limit=5, look_at_all=True)
            assert [it.run_id for it in found.runs] == ["lost"] and not found.has_more

    asyncio.run(main())


def test_the_log_decides_whatever_the_index_says(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            log = Writer(bus)
            await log.start("ended")
            await log.put("ended", bus.subjects.done("ended"), done())  # and died
            await bus.open_runs.enter("never-begun", OpenRun(agent="a"))
            await log.start("again")
            await log.end("again", FAILED)
            again = RunReopened(reason="re-driven")
            await log.put("again", bus.subjects.turn("again", "main"), again)
            assert [it.run_id for it in await list_open(bus, limit=5)] == ["again"]
            everything = {it.run_id: it.status for it in await list_runs(bus, limit=5)}
            assert everything == {"ended": "completed", "again": "running"}
            assert (await list_with_status(bus, "failed", limit=5)).runs == []

    asyncio.run(main())


def test_children_are_listed_only_in_trees(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            log = Writer(bus)
            await log.start("top")
            await log.start("below", parent="top")
            await log.start("below-2", parent="top")
            await log.end("below-2", FAILED)
            tops = await list_open(bus, limit=5, which="top_level")
            assert [it.run_id for it in tops] == ["top"]
            trees = await list_open(bus, limit=5, which="trees")
            assert {it.run_id for it in trees} == {"top", "below"}
            ended = await list_with_status(bus, "failed", limit=5, which="top_level")
            assert ended.runs == []
            ended = await list_with_status(bus, "failed", limit=5, which="trees")
            assert [it.run_id for it in ended.runs] == ["below-2"]

    asyncio.run(main())
