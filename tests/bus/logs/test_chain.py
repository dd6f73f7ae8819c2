"""Events name those before them, so that a run is read by sequence, whatever else is in the log."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.logs.chain import BEFORE, before_header
from sandstream_bus.nats.fresh import predecessor
from sandstream_bus.wire.headers import BEFORE as BEFORE_HEADER
from sandstream_bus.wire.headers import EXPECTED_SEQUENCE, EXPECTED_SUBJECT
from sandstream_bus.wire.messages import InputStaged
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import call, done, finished, new_run, started


class Requests:
    """What is asked of the log meanwhile."""

    def __init__(self) -> None:
        self.by_subject = 0
        self.by_sequence = 0

    async def listen(self, bus: Bus) -> Callable[[], Awaitable[None]]:
        def heard(message: object) -> None:
            query = msgspec.json.decode(message.data or b"{}")  # type: ignore[attr-defined]
            self.by_subject += "next_by_subj" in query
            self.by_sequence += "seq" in query and "next_by_subj" not in query

        subject = f"$JS.API.DIRECT.GET.{bus.topology.log}"
        listening = await bus.connection.subscribe(subject, heard)
        await bus.connection.flush()

        async def close() -> None:
            await bus.connection.flush()
            await listening.close()

        return close


async def fill(bus: Bus, count: int = 300) -> None:
    """Events of other runs, so that a stretch of the log is not near any more."""
    other = new_run()
    publish = bus.connection.publish
    subject, data = bus.subjects.call(other, "h"), await bus.codec.encode(call(0))
    await asyncio.gather(*(publish(subject, data, msg_id=f"{other}:{n}") for n in range(count)))


async def begin(bus: Bus) -> tuple[RunId, int]:
    run = new_run()
    subject = bus.subjects.start(run, "main")
    return run, await bus.log.append(run, subject, started(), after=0, msg_id=f"{run}:start")


def on_bus(nats_server: NatsServer, story: Callable[[Bus], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await story(bus)

    asyncio.run(main())


async def send(bus: Bus, run: RunId, number: int, after: int) -> tuple[int, int | None]:
    return await bus.log.send_after(
        run,
        bus.subjects.result(run, "main"),
        finished(number),
        after=after,
        msg_id=f"{run}:{number}",
    )


def test_a_message_names_its_predecessor(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        sent = await send(bus, run, 1, after=first)
        assert sent[1] == first
        (event,) = await bus.log.read(run, after=first)
        assert predecessor(event.stored, bus.subjects.run_all(run)) == first

    on_bus(nats_server, story)


def test_a_wrong_guess_is_put_right_by_the_server(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        second, _ = await send(bus, run, 1, after=first)
        third = await send(bus, run, 2, after=first)
        assert third[1] == second

    on_bus(nats_server, story)


def test_many_that_write_at_once_are_all_stored_once(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        await asyncio.gather(*(send(bus, run, n, after=first) for n in range(40)))
        await asyncio.gather(*(send(bus, run, n, after=first) for n in range(40)))  # again
        events = await bus.log.read(run)
        assert len(events) == 41
        subject = bus.subjects.run_all(run)
        for before, event in itertools.pairwise(events):
            assert predecessor(event.stored, subject) in (before.sequence, None)

    on_bus(nats_server, story)


def test_a_run_is_read_by_sequence_however_much_is_in_between(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, last = await begin(bus)
        at = [last]
        for number in range(10):
            await fill(bus, 60)
            last, _ = await send(bus, run, number, after=last)
            at.append(last)
        requests = Requests()
        close = await requests.listen(bus)
        assert [it.sequence for it in await bus.log.read(run)] == at
        assert [it.sequence for it in await bus.log.read(run, after=at[2])] == at[3:]
        await close()
        assert requests.by_subject == 0
        assert requests.by_sequence == 10 + 7

    on_bus(nats_server, story)


def test_a_decision_names_many_so_that_they_are_read_at_once(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        subject = bus.subjects.result(run, "main")
        at = [first]
        for number in range(BEFORE - 1):  # they do not name their predecessors
            ack = await bus.log.send(subject, finished(number), msg_id=f"{run}:{number}")
            at.append(ack.seq)
        await fill(bus)
        headers = before_header(at[-BEFORE:])
        end = await bus.log.append(
            run, bus.subjects.done(run), done(), after=at[-1], msg_id="done", headers=headers
        )
        requests = Requests()
        close = await requests.listen(bus)
        found = await bus.log.read(run, after=first)
        await close()
        assert [it.sequence for it in found] == [*at[1:], end]
        assert requests.by_subject == 0

    on_bus(nats_server, story)


def test_an_event_that_names_nothing_is_found_by_subject(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        subject = bus.subjects.result(run, "main")
        ack = await bus.log.send(subject, finished(1), msg_id=f"{run}:1")
        await fill(bus)
        last, before = await send(bus, run, 2, after=ack.seq)
        assert before == ack.seq
        found = [it.sequence for it in await bus.log.read(run)]
        assert found == [first, ack.seq, last]

    on_bus(nats_server, story)


def test_what_an_outsider_claims_to_come_before_is_not_believed(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        second, _ = await send(bus, run, 1, after=first)
        await fill(bus)
        # hides the second event: the expectation is true, the list is a lie
        await bus.connection.publish(
            bus.subjects.input(run),
            await bus.codec.encode(InputStaged(input="hello")),
            msg_id="liar",
            headers={
                BEFORE_HEADER: str(first),
                EXPECTED_SEQUENCE: str(second),
                EXPECTED_SUBJECT: bus.subjects.run_all(run),
            },
        )
        found = [it.sequence for it in await bus.log.read(run)]
        assert found[:2] == [first, second] and len(found) == 3

    on_bus(nats_server, story)


def test_a_run_whose_middle_has_expired_is_still_read(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        second, _ = await send(bus, run, 1, after=first)
        await fill(bus)
        last, _ = await send(bus, run, 2, after=second)
        (gone,) = [it for it in await bus.log.read(run) if it.sequence == second]
        body = msgspec.json.encode({"filter": gone.subject, "seq": second + 1})
        await bus.connection.request(f"$JS.API.STREAM.PURGE.{bus.topology.log}", body)
        assert [it.sequence for it in await bus.log.read(run)] == [first, last]

    on_bus(nats_server, story)


def test_a_repeated_expectation_of_an_outsider_hides_nothing(nats_server: NatsServer) -> None:
    """The server checks the first of two headers of a name; a client may read the second."""

    async def story(bus: Bus) -> None:
        run, first = await begin(bus)
        second, _ = await send(bus, run, 1, after=first)
        subject, expected = bus.subjects.input(run), bus.subjects.run_all(run)
        head = (
            f"NATS/1.0\r\n{EXPECTED_SEQUENCE}: {second}\r\n{EXPECTED_SUBJECT}: {expected}\r\n"
            f"{EXPECTED_SEQUENCE}: 0\r\n\r\n"
        ).encode()
        body = await bus.codec.encode(InputStaged(input="hello"))
        inbox = bus.connection.new_inbox()
        answered = asyncio.Event()
        await bus.connection.subscribe(inbox, lambda _: answered.set())
        await bus.connection.flush()
        line = f"HPUB {subject} {inbox} {len(head)} {len(head) + len(body)}\r\n".encode()
        transport = bus.connection._client._transport
        assert transport is not None
        transport.write(line + head + body + b"\r\n")
        await answered.wait()
        found = [it.sequence for it in await bus.log.read(run)]
        assert found[:2] == [first, second] and len(found) == 3

    on_bus(nats_server, story)
