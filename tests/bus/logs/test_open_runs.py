"""The index of open runs: never without an open run, soon without an ended one."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.wire.messages import (
    ApprovalRequested,
    Message,
    RunReopened,
    RunWaiting,
    TurnRequested,
)
from sandstream_bus.wire.open_runs import OpenRun, Question
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import done, new_run, started
from support.waiting import eventually

ASKED = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c1")


async def open_now(bus: Bus) -> set[RunId]:
    return {it.run for it in await bus.open_runs.all()}


async def append(bus: Bus, run: RunId, subject: str, message: Message, after: int = 0) -> int:
    return await bus.log.append(run, subject, message, after=after, msg_id=f"{run}:{after}")


async def begin(bus: Bus, run: RunId) -> int:
    return await append(bus, run, bus.subjects.start(run, "main"), started())


async def finish(bus: Bus, run: RunId, after: int) -> int:
    return await append(bus, run, bus.subjects.done(run), done(), after)


def test_a_start_enters_the_run_and_its_end_removes_it(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, other = new_run(), new_run()
            await begin(bus, other)
            first = await begin(bus, run)
            entries = {it.run: it for it in await bus.open_runs.all()}
            assert entries.keys() == {run, other}
            assert entries[run].open.agent == "a" and entries[run].open.pool == "main"
            assert entries[run].since
            await finish(bus, run, first)
            await bus.open_runs.leave(run)
            assert await open_now(bus) == {other}

            async def is_small() -> bool:
                state = await bus.topology.stream_state(bus.connection, bus.topology.open)
                return bool(state["messages"] == 1)

            await eventually(is_small, what="an index without the tombstone")

    asyncio.run(main())


def test_starting_an_ended_run_again_leaves_no_entry(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await finish(bus, run, await begin(bus, run))
            await bus.open_runs.leave(run)
            with pytest.raises(Conflict):
                await bus.log.append(
                    run, bus.subjects.start(run, "main"), started(), after=0, msg_id="again"
                )
            assert await open_now(bus) == set()
            await begin(bus, run)  # the same message again, which the server has stored already
            assert await open_now(bus) == set()

    asyncio.run(main())


def test_a_second_start_of_an_open_run_keeps_its_entry(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await begin(bus, run)
            question = Question(asked=ASKED, since="2026-01-01T00:00:00Z")
            await bus.open_runs.note_waiting(run, OpenRun(), 5, [question])
            with pytest.raises(Conflict):
                await bus.log.append(
                    run, bus.subjects.start(run, "main"), started(), after=0, msg_id="again"
                )
            [entry] = await bus.open_runs.all()
            assert entry.open.waited and entry.open.questions == [question]

    asyncio.run(main())


def test_a_reopened_run_is_entered_again_as_old_as_it_is(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            first = await begin(bus, run)
            began = (await bus.log.read(run))[0].stored.time
            last = await finish(bus, run, first)
            await bus.open_runs.leave(run)
            reopened = RunReopened(reason="re-driven")
            await append(bus, run, bus.subjects.turn(run, "main"), reopened, last)
            [entry] = await bus.open_runs.all()
            assert (entry.run, entry.since, entry.open.agent) == (run, began, "a")

    asyncio.run(main())


def test_of_two_writers_the_one_with_the_later_event_counts(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await begin(bus, run)
            [before] = await bus.open_runs.all()
            new, old = (Question(asked=ASKED, since=f"2026-01-0{n}T00:00:00Z") for n in (2, 1))
            await asyncio.gather(
                bus.open_runs.note_waiting(run, OpenRun(), 20, [new]),
                bus.open_runs.note_waiting(run, OpenRun(), 10, [old]),
            )
            [entry] = await bus.open_runs.all()
            assert entry.open.at == 20 and entry.open.questions == [new]
            assert entry.since == before.since and entry.open.agent == "a"

    asyncio.run(main())


def test_questions_that_are_too_big_for_an_index_are_left_to_the_log(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await begin(bus, run)
            big = ApprovalRequested(
                call="t1-0", turn=1, agent="a", name="f", call_id="c1", arguments="x" * 50_000
            )
            await bus.open_runs.note_waiting(run, OpenRun(), 5, [Question(asked=big, since="")])
            [entry] = await bus.open_runs.all()
            assert entry.open.waited and entry.open.questions == []

    asyncio.run(main())


def test_the_index_of_an_older_installation_is_made_from_its_log(nats_server: NatsServer) -> None:
    async def main() -> None:
        running, waiting, ended, reopened, late = (new_run() for _ in range(5))
        async with open_bus(nats_server) as bus:
            s = bus.subjects
            await begin(bus, running)
            first = await begin(bus, waiting)
            waits = RunWaiting(turn=1, approvals=[ASKED])
            place = await append(bus, waiting, s.waiting(waiting), waits, first)
            await finish(bus, ended, await begin(bus, ended))
            last = await finish(bus, reopened, await begin(bus, reopened))
            again = RunReopened(reason="re-driven")
            await append(bus, reopened, s.turn(reopened, "main"), again, last)
            turn = TurnRequested(turn=2, agent="a")
            first = await begin(bus, late)  # its timer fired before its end
            await finish(bus, late, await append(bus, late, s.turn(late, "main"), turn, first))
            await bus.connection.request(f"$JS.API.STREAM.DELETE.{bus.topology.open}", b"")
        async with open_bus(nats_server) as bus:
            entries = {it.run: it for it in await bus.open_runs.all()}
            assert entries.keys() == {running, waiting, reopened}
            assert entries[running].since and not entries[running].open.waited
            found = entries[waiting].open
            assert found.at == place and [it.asked for it in found.questions] == [ASKED]
            assert await bus.rebuild_index() == 3  # again: nothing changes
            assert {it.run: it for it in await bus.open_runs.all()} == entries

    asyncio.run(main())


def test_a_start_that_is_stored_counts_although_the_index_refuses_its_entry(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            refuse = {"name": bus.topology.open, "subjects": [bus.subjects.open("*")]}
            info = await bus.topology.stream_info(bus.connection, bus.topology.open)
            body = msgspec.json.encode(info["config"] | refuse | {"max_msgs": 1})
            reply = await bus.connection.request(f"$JS.API.STREAM.UPDATE.{bus.topology.open}", body)
            assert "error" not in msgspec.json.decode(reply.data)
            monkeypatch.setattr("sandstream_bus.logs.runs.PUBLISH_BUDGET_S", 0.5)
            runs = [new_run() for _ in range(3)]
            for run in runs:
                await begin(bus, run)
            assert [len(await bus.log.read(run)) for run in runs] == [1, 1, 1]
            assert len(await open_now(bus)) == 1

    asyncio.run(main())


def test_an_ended_run_leaves_although_nobody_can_read_all_of_it(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            ended, under_way = new_run(), new_run()
            for run in (ended, under_way):
                await begin(bus, run)
                await bus.connection.publish(bus.subjects.model(run), b"{", msg_id=f"{run}:odd")
            await finish(bus, ended, await bus.log.last_sequence(ended))
            for run in (ended, under_way):
                await bus.log.leave_if_over(run)
            assert await open_now(bus) == {under_way}

    asyncio.run(main())
