"""The log: appends are decisions, sends are stored once, reads are complete."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from sandstream_bus.errors import BusUnavailable, WrongSequence
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.nats.publication import Expect
from sandstream_bus.wire.messages import AgentRegistered
from support.nats_server import NatsServer, open_bus
from support.runs import call, done, finished, new_run, started


def test_append_in_order_and_read_back(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            first = await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
            second = await bus.log.append(
                run, s.done(run), done(), after=first, msg_id="2", headers={"x": "y"}
            )
            read = await bus.log.read(run)
            assert [e.sequence for e in read] == [first, second]
            assert [e.event for e in read] == [started(), done()]
            assert read[1].stored.headers["x"] == "y"
            assert read[1].stored.msg_id == "2"
            assert read[1].stored.time.startswith("20")
            assert [e.sequence for e in await bus.log.read(run, after=first)] == [second]
            assert await bus.log.last_sequence(run) == second
            assert await bus.log.last_sequence(new_run()) == 0
            assert await bus.log.read(new_run()) == []
            last = await bus.log.last(s.done(run))
            assert last is not None
            assert last.event == done()
            assert await bus.log.last(s.model(run)) is None

    asyncio.run(main())


def test_a_conflict_carries_what_is_new(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as rival:
            run, s = new_run(), bus.subjects
            first = await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
            await rival.log.send(s.result(run, "p"), finished(0), msg_id="2")
            await rival.log.send(s.result(run, "p"), finished(1), msg_id="3")
            with pytest.raises(Conflict) as caught:
                await bus.log.append(run, s.done(run), done(), after=first, msg_id="4")
            assert [e.event for e in caught.value.news] == [finished(0), finished(1)]
            after = caught.value.news[-1].sequence
            assert await bus.log.append(run, s.done(run), done(), after=after, msg_id="4") > after

    asyncio.run(main())


def test_of_twenty_rivals_one_wins(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as other:
            run, s = new_run(), bus.subjects
            outcomes = await asyncio.gather(
                *(
                    (bus, other)[n % 2].log.append(
                        run, s.result(run, f"p{n}"), finished(n), after=0, msg_id=f"m{n}"
                    )
                    for n in range(20)
                ),
                return_exceptions=True,
            )
            assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
            assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19
            assert len(await bus.log.read(run)) == 1

    asyncio.run(main())


def test_other_runs_do_not_conflict(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            runs = [new_run() for _ in range(50)]
            s = bus.subjects
            await asyncio.gather(
                *(bus.log.append(r, s.done(r), done(), after=0, msg_id=r) for r in runs)
            )
            assert all([len(await bus.log.read(run)) == 1 for run in runs])

    asyncio.run(main())


def test_a_lost_acknowledgement_is_ones_own_success(nats_server: NatsServer) -> None:
    """The decision is stored, the writer does not know, others wrote after it."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            first = await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
            mine = await bus.log.append(run, s.model(run), done(), after=first, msg_id="mine")
            await bus.log.send(s.result(run, "p"), finished(0), msg_id="3")
            again = await bus.log.append(run, s.model(run), done(), after=first, msg_id="mine")
            assert again == mine
            assert len(await bus.log.read(run)) == 3

    asyncio.run(main())


def test_create_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            subject = bus.subjects.started(run, "t1-0")
            first = await bus.log.create_once(subject, call(0), msg_id="a")
            assert first is not None
            assert await bus.log.create_once(subject, call(0), msg_id="a") == first
            assert await bus.log.create_once(subject, call(0), msg_id="b") is None
            other = bus.subjects.started(run, "t1-1")
            assert await bus.log.create_once(other, call(1), msg_id="c") is not None

    asyncio.run(main())


def test_a_send_is_stored_once_per_id(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            subject = bus.subjects.call(run, "p")
            acks = [await bus.log.send(subject, call(0), msg_id="same") for _ in range(3)]
            assert [ack.duplicate for ack in acks] == [False, True, True]
            assert len({ack.seq for ack in acks}) == 1
            assert len(await bus.log.read(run)) == 1

    asyncio.run(main())


def test_a_run_of_more_than_one_batch_is_read_whole(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, noise = new_run(), new_run()
            s = bus.subjects
            total = 1300
            for start in range(0, total, 100):
                await asyncio.gather(
                    *(
                        bus.log.send(s.call(run, f"p{n % 7}"), call(n), msg_id=f"m{n}")
                        for n in range(start, start + 100)
                    ),
                    bus.log.send(s.call(noise, "p"), call(start), msg_id=f"n{start}"),
                )
            read = await bus.log.read(run)
            assert len(read) == total
            sequences = [e.sequence for e in read]
            assert sequences == sorted(set(sequences))
            assert {e.event.call for e in read} == {f"t1-{n}" for n in range(total)}  # type: ignore[union-attr]
            assert [e.sequence for e in await bus.log.read(run, after=sequences[511])] == (
                sequences[512:]
            )
            for limit in (0, 1, 512, 513, 1299, 5000):
                some = await stale_many(
                    bus.connection, bus.topology.log, s.run_all(run), after=0, limit=limit
                )
                assert [m.sequence for m in some] == sequences[:limit]

    asyncio.run(main())


def test_last_of_each_of_many_subjects(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            runs = [new_run() for _ in range(600)]
            s = bus.subjects
            await asyncio.gather(
                *(bus.log.send(s.call(r, "p"), call(0), msg_id=f"{r}0") for r in runs)
            )
            await asyncio.gather(
                *(bus.log.send(s.call(r, "p"), call(1), msg_id=f"{r}1") for r in runs[:9])
            )
            found = await bus.log.last_each([s.call(r, "p") for r in runs])
            assert len(found) == 600
            assert sum(e.event == call(1) for e in found) == 9
            assert await bus.log.last_each([s.call(new_run(), "p")]) == []
            assert await bus.log.last_each([]) == []

    asyncio.run(main())


def test_reading_waits_out_a_server_restart(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id="1")
            nats_server.kill()
            reading = asyncio.ensure_future(bus.log.read(run))
            last = asyncio.ensure_future(bus.log.last(bus.subjects.call(run, "p")))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(nats_server.start)
            assert len(await reading) == 1
            found = await last
            assert found is not None

    asyncio.run(main())


def test_wrong_sequence_is_told_from_other_refusals(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(WrongSequence, match="10071"):
                await bus.connection.publish(
                    "sandstream.run.x.done", b"{}", msg_id="1", expect=Expect(7, "sandstream.run.>")
                )

    asyncio.run(main())


def test_any_number_of_agents_is_listed(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            graph = started().graph
            names = [f"agent {n}" for n in range(1100)]
            await asyncio.gather(
                *(
                    bus.agents.register(
                        AgentRegistered(
                            graph=msgspec.structs.replace(graph, start=name), pool="main"
                        ),
                        instance="1",
                    )
                    for name in names
                )
            )
            assert await bus.agents.names() == sorted(names)

    asyncio.run(main())


def test_a_decision_in_hand_outlives_a_log_that_cannot_be_read(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor holds an answer that cost money: it waits until it knows what made it fail."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
            read, failures = bus.work_log.read, [BusUnavailable("no answer")]

            async def flaky(*args: Any, **options: Any) -> Any:
                if failures:
                    raise failures.pop()
                return await read(*args, **options)

            monkeypatch.setattr(bus.work_log, "read", flaky)
            with pytest.raises(Conflict):
                await bus.work_log.append(run, s.done(run), done(), after=0, msg_id="2")

    asyncio.run(main())
