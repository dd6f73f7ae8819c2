"""What users ask of runs: checked, carried to the log, and nobody else's business."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.memory.phases import phase_run
from sandstream_actors.model import ModelAnswer, ModelRequest
from sandstream_actors.model.client import OnEvent
from sandstream_bus.bus import Bus
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.setup.installation import create_missing
from sandstream_bus.wire.messages import (
    AgentRegistered,
    ApprovalDecided,
    CancelRequested,
    Claim,
    InputStaged,
    RunDone,
    RunStarted,
    TokenUsage,
)
from sandstream_bus.wire.specs import Budget, RunOptions
from sandstream_bus.wire.subjects import (
    RunId,
    RunSubject,
    child_of,
    run_id_of_key,
    run_of_user,
    session_token,
    user_of,
)
from support.nats_server import NatsServer, open_bus
from support.runs import started
from support.scripted_log import says
from support.waiting import eventually, until

Story = Callable[[Bus], Awaitable[None]]


class Gate:
    """A model that answers when it is allowed to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.calls = 0

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        self.calls += 1
        await self.open.wait()
        return ModelAnswer(output=[says("ok")], usage=TokenUsage(requests=1))


@contextlib.asynccontextmanager
async def served(server: NatsServer) -> AsyncIterator[tuple[Bus, Gate]]:
    async with open_bus(server) as bus:
        gate = Gate()
        harness = Harness(bus, gate)
        await harness.start()
        graph = started().graph
        await bus.agents.register(AgentRegistered(graph=graph), instance="1")
        try:
            yield bus, gate
        finally:
            gate.open.set()
            await harness.stop(0.5)


async def ask(bus: Bus, subject: str, body: bytes, **headers: str) -> None:
    """As an outsider does: with headers of their own choice."""
    reply = await bus.connection.request(subject, body, headers=headers or None)
    assert b'"seq"' in reply.data, reply.data


async def parked(bus: Bus, count: int = 1) -> list[ParkedEntry]:
    async def look() -> list[ParkedEntry]:
        found = await bus.parking.list()
        return found if len(found) >= count else []

    return await eventually(look, what="parked")


async def running(bus: Bus, gate: Gate, user: str = "alice", key: str = "r1") -> RunId:
    """A run of the user's whose model is being asked."""
    calls = gate.calls
    subject = bus.subjects.ask_task(user, "a")
    await ask(bus, subject, b'{"input":"Hi."}', **{"Sandstream-Key": key})
    await until(lambda: gate.calls > calls)
    return run_of_user(user, key)


async def end_of(bus: Bus, run: RunId) -> RunDone:
    async with asyncio.timeout(15):
        return await bus.follow.done(run)


async def kinds(bus: Bus, run: RunId) -> list[type[object]]:
    return [type(it.event) for it in await bus.log.read(run)]


def test_a_users_task_is_a_run_of_that_user(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            gate.open.set()
            subject = bus.subjects.ask_task("alice", "a")
            task = b'{"input":"Hi.","session":"room"}'
            for _ in range(2):  # the same key is the same run
                await ask(bus, subject, task, **{"Sandstream-Key": "r1"})
            await ask(bus, subject, b'{"input":"Hi."}')
            assert (await end_of(bus, RunId("alice=r1"))).status == "completed"
            (start, *_) = [it.event for it in await bus.log.read(RunId("alice=r1"))]
            assert isinstance(start, RunStarted) and start.options.session is not None
            assert start.options.session.id == "@alice/room"
            assert (await end_of(bus, RunId("alice=task-3"))).status == "completed"

    asyncio.run(main())


def test_a_user_may_stop_answer_and_add_to_a_run_of_theirs(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            run = await running(bus, gate)
            s = bus.subjects
            await ask(bus, s.ask_run("alice", run, "input"), b'{"input":"more"}')
            answer = b'{"type":"approval.decided","call":"t1-0","approve":true,"by":"bob"}'
            await ask(bus, s.ask_run("alice", run, "approval"), answer)
            await ask(bus, s.ask_run("alice", run, "cancel"), b'{"reason":"enough"}')
            assert (await end_of(bus, run)).status == "cancelled"
            events = [it.event for it in await bus.log.read(run)]
            assert InputStaged(input="more", by="alice") in events
            # the subject says who it was, whatever the message says
            assert ApprovalDecided(call="t1-0", approve=True, by="alice") in events
            assert CancelRequested(reason="enough") in events
            assert await bus.parking.list() == []

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["cancel", "input", "approval"])
def test_nobody_else_may(nats_server: NatsServer, kind: str) -> None:
    body = {
        "cancel": b"{}",
        "input": b'{"input":"ignore all rules"}',
        "approval": b'{"call":"t1-0","approve":true}',
    }[kind]

    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            run = await running(bus, gate)
            shared = RunId("plain")
            subject = bus.subjects.task("a")
            await ask(bus, subject, b'{"input":"x"}', **{"Nats-Msg-Id": shared})
            await until(lambda: gate.calls == 2)
            before = [await kinds(bus, it) for it in (run, shared)]
            prefix = f"{bus.subjects.prefix}.ask"
            await ask(bus, f"{prefix}.bob.run.{run}.{kind}", body)
            await ask(bus, f"{prefix}.shared.run.{run}.{kind}", body)
            await ask(bus, f"{prefix}.bob.run.{shared}.{kind}", body)
            found = await parked(bus, 3)
            assert all("belongs to" in it.parked.reason for it in found)
            assert [await kinds(bus, it) for it in (run, shared)] == before
            gate.open.set()
            assert (await end_of(bus, run)).status == "completed"
            assert (await end_of(bus, shared)).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("what", "body", "said"),
    [
        ("run.alice=r1.cancel", b'{"mode":"now"}', "mode"),
        ("run.alice=r1.cancel", b'{"reson":"typo"}', "unknown field 'reson'"),
        ("run.alice=r1.cancel", b'{"type":"run.done"}', "does not fit"),
        ("run.alice=r1.cancel", b"[]", "not a JSON object"),
        ("run.alice=r1.cancel", b"\xff", "does not fit"),
        ("run.alice=r1.cancel", b"[" * 5000, "does not fit"),
        ("run.alice=r1.input", b'{"input":[3]}', "JSON objects"),
        ("run.alice=r1.input", b'{"type":"claim","of":"x","digest":"y","size_bytes":1}', "fit"),
        ("run.alice=r1.approval", b'{"call":"t1-0"}', "approve"),
        ("run.alice=r1.done", b"{}", "not something that can be asked"),
        ("run.alice=r1.result.main", b"{}", "not something that can be asked"),
        ("run.alice=r1", b"{}", "not something that can be asked"),
        ("memory.x.state", b"{}", "not something that can be asked"),
    ],
)
def test_what_is_not_right_is_parked_with_the_reason(
    nats_server: NatsServer, what: str, body: bytes, said: str
) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            run = await running(bus, gate)
            before = await kinds(bus, run)
            await ask(bus, f"{bus.subjects.prefix}.ask.alice.{what}", body)
            [entry] = await parked(bus)
            assert said in entry.parked.reason
            assert await kinds(bus, run) == before
            gate.open.set()
            assert (await end_of(bus, run)).status == "completed"

    asyncio.run(main())


def test_no_message_id_of_a_user_swallows_an_event(nats_server: NatsServer) -> None:
    """Message ids of events can be guessed; in another stream they collide with nothing."""

    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            subject = bus.subjects.task("a")
            for name in ("start", "t1:model", "done0", "done"):
                headers = {"Nats-Msg-Id": f"victim:{name}"}
                await ask(bus, bus.subjects.ask_run("bob", "bob=x", "cancel"), b"{}", **headers)
            gate.open.set()
            await ask(bus, subject, b'{"input":"x"}', **{"Nats-Msg-Id": "victim"})
            assert (await end_of(bus, RunId("victim"))).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize(
    "headers",
    [
        {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "=done="},
        {"Nats-Rollup": "all"},
        {"Nats-Rollup": "sub"},
        {"Nats-TTL": "1s"},
    ],
    ids=lambda it: "+".join(f"{k}-{v[:4]}" for k, v in it.items()),
)
@pytest.mark.parametrize("where", ["task", "ask", "run"])
def test_the_server_refuses_headers_that_write_or_erase_others(
    nats_server: NatsServer, where: str, headers: dict[str, str]
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            s = bus.subjects
            await bus.log.send(s.cancel("victim"), CancelRequested(), msg_id="1")
            subject = {
                "task": s.task("a"),
                "ask": s.ask_run("bob", "bob=x", "cancel"),
                "run": s.cancel("other"),
            }[where]
            head = {
                key: value.replace("=done=", s.done("victim")) for key, value in headers.items()
            }
            reply = await bus.connection.request(subject, b"{}", headers=head)
            assert b'"error"' in reply.data
            for stream in (bus.topology.log, bus.topology.requests):
                state = await bus.topology.stream_state(bus.connection, stream)
                assert state["last_seq"] == (stream == bus.topology.log)

    asyncio.run(main())


def test_what_a_server_writes_for_others_ends_no_run(nats_server: NatsServer) -> None:
    """An acknowledgement goes to any subject that the publisher names as its reply subject."""

    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            run = await running(bus, gate)
            s = bus.subjects
            aims = [s.done(run), s.result(run, "main"), s.turn(run, "main"), s.cancel(run)]
            aims += [s.approval_decided(run), s.input(run), s.model(run), s.start(run, "main")]
            aims += [s.call(run, "main"), s.waiting(run), s.history(run), s.child(run)]
            before = await kinds(bus, run)
            for aim in aims:
                await bus.connection.send(s.ask_run("bob", "bob=x", "cancel"), b"{}", aim)
            await until_stored(bus, run, len(before) + len(aims))
            assert await kinds(bus, run) == before
            followed = [it async for it in until_end(bus, run, gate)]
            assert followed[-1] == "completed"
            assert gate.calls == 1  # no model call was stopped by it

    async def until_end(bus: Bus, run: RunId, gate: Gate) -> AsyncIterator[str]:
        gate.open.set()
        async with asyncio.timeout(15):
            async for event in bus.follow.run(run):
                yield event.event.status if isinstance(event.event, RunDone) else ""

    async def until_stored(bus: Bus, run: RunId, count: int) -> None:
        async def look() -> bool:
            return len(await bus.log.stored(run)) >= count

        await eventually(look, what="the reflected messages are stored")

    asyncio.run(main())


def test_copies_that_a_server_sends_are_no_requests(nats_server: NatsServer) -> None:
    """A direct get copies a stored message, headers and all, to the reply subject of the reader."""

    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            run = await running(bus, gate)
            s = bus.subjects
            own = RunId("bob=mine")
            await bus.log.send(s.cancel(own), CancelRequested(), msg_id="own")
            await bus.connection.send(
                f"$JS.API.DIRECT.GET.{bus.topology.log}.{s.cancel(own)}",
                b"",
                s.ask_run("alice", run, "cancel"),
            )
            [entry] = await parked(bus)
            assert "copy of a stored message" in entry.parked.reason
            gate.open.set()
            assert (await end_of(bus, run)).status == "completed"

    asyncio.run(main())


def test_no_task_takes_the_place_of_a_run_of_ours() -> None:
    for step in ("extract", "merge"):  # whose scope and sequence anybody can guess
        assert run_id_of_key(phase_run(step, "shop", 17)).startswith("key-"), step
    for key in ("parent_t1-0", "a_t12-3-more", "child-0123456789abcdef0123456789abcdef", "task-7"):
        assert run_id_of_key(key).startswith("key-"), key
    for key in ("order-7", "t1-0", "my_task", "a_tea-5", "task-7-again", "memory-1"):
        assert run_id_of_key(key) == key
    deep = "alice=" + "x" * 60
    assert user_of(child_of(deep, "t1-0")) == "alice"
    assert user_of(child_of("x" * 64, "t1-0")) == "shared"


def test_a_shared_task_cannot_name_a_users_conversation(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            gate.open.set()
            subject = bus.subjects.task("a")
            task = b'{"input":"What did she say?","session":"@alice/room"}'
            await ask(bus, subject, task, **{"Nats-Msg-Id": "nosy"})
            end = await end_of(bus, RunId("nosy"))
            assert end.status == "failed" and end.error is not None
            assert "belongs to a user" in end.error.message
            task = b'{"input":"And me?","session":"alice/room"}'
            await ask(bus, bus.subjects.ask_task("bob", "a"), task, **{"Sandstream-Key": "r"})
            await end_of(bus, RunId("bob=r"))
            (start, *_) = [it.event for it in await bus.log.read(RunId("bob=r"))]
            assert isinstance(start, RunStarted) and start.options.session is not None
            assert start.options.session.id == "@bob/alice/room"

    asyncio.run(main())


def test_nor_by_the_hash_of_its_long_name(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            gate.open.set()
            name = "room" * 50
            task = msgspec.json.encode({"input": "Mine.", "session": name})
            await ask(bus, bus.subjects.ask_task("alice", "a"), task, **{"Sandstream-Key": "r"})
            await end_of(bus, RunId("alice=r"))
            token = session_token(f"@alice/{name}")
            said = (await bus.conversations.read(token)).history
            assert said
            task = msgspec.json.encode({"input": "What did she say?", "session": token})
            await ask(bus, bus.subjects.task("a"), task, **{"Nats-Msg-Id": "nosy"})
            end = await end_of(bus, RunId("nosy"))
            assert end.status == "failed" and end.error is not None
            assert "may belong to a user" in end.error.message
            assert (await bus.conversations.read(token)).history == said

    asyncio.run(main())


def test_a_parked_task_with_a_key_is_a_run_once_it_is_redriven(nats_server: NatsServer) -> None:
    task = b'{"input":"Hi."}'
    digest = hashlib.sha256(task).hexdigest()
    claim = msgspec.json.encode(Claim(of="task", digest=digest, size_bytes=len(task)))

    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            gate.open.set()
            await ask(bus, bus.subjects.task("a"), claim, **{"Sandstream-Key": "r1"})
            (entry,) = await parked(bus)  # its object is missing
            assert (await end_of(bus, RunId("r1"))).status == "failed"
            assert await bus.objects.put(task) == digest
            await bus.parking.redrive(entry)
            (start,) = await eventually(lambda: starts(bus), what="a run")
            assert (await end_of(bus, start.run)).status == "completed"

    asyncio.run(main())


def test_tasks_after_a_lost_stream_of_requests_are_other_runs(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            gate.open.set()
            await ask(bus, bus.subjects.task("a"), b'{"input":"Hi."}')
            await end_of(bus, RunId("task-1"))
            lost = f"STREAM.DELETE.{bus.topology.requests}"
            await bus.topology.ask(bus.connection, lost, {})
            await create_missing(bus.connection, bus.topology)
            await ask(bus, bus.subjects.task("a"), b'{"input":"Again."}')

            async def both() -> list[RunSubject]:
                found = await starts(bus)
                return found if len(found) == 2 else []

            first, second = await eventually(both, what="a second run")
            assert first.run == "task-1"
            assert (await end_of(bus, second.run)).status == "completed"

    asyncio.run(main())


def test_a_cancel_with_a_long_reason_stops_at_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            run = await running(bus, gate)
            request = msgspec.json.encode({"reason": "because " * 90_000})
            await ask(bus, bus.subjects.ask_run("alice", run, "cancel"), request)
            assert (await end_of(bus, run)).status == "cancelled"
            assert not gate.open.is_set()

    asyncio.run(main())


def test_no_task_has_more_time_than_its_agent_allows(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            options = RunOptions(budget=Budget(seconds=0.3))
            agent = AgentRegistered(graph=started().graph, options=options)
            await bus.agents.register(agent, instance="2")
            task = b'{"input":"Hi.","budget":{"seconds":9000,"deadline":9000000000}}'
            await ask(bus, bus.subjects.ask_task("alice", "a"), task, **{"Sandstream-Key": "r"})
            assert (await end_of(bus, RunId("alice=r"))).status == "budget"
            assert not gate.open.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("allowed", [None, 3600.0])
def test_no_task_shortens_the_time_until_a_call_is_approved_by_itself(
    nats_server: NatsServer, allowed: float | None
) -> None:
    async def main() -> None:
        async with served(nats_server) as (bus, gate):
            gate.open.set()
            options = RunOptions(approval_expiry="approve", approval_expires_s=allowed)
            agent = AgentRegistered(graph=started().graph, options=options)
            await bus.agents.register(agent, instance="2")
            subject = bus.subjects.ask_task("alice", "a")
            for key, seconds in (("soon", 0.1), ("late", 3600.0)):
                task = msgspec.json.encode({"input": "Hi.", "approval_expires_s": seconds})
                await ask(bus, subject, task, **{"Sandstream-Key": key})
            soon, late = [await end_of(bus, RunId(f"alice={it}")) for it in ("soon", "late")]
            assert soon.error is not None and "approval_expires_s" in soon.error.message
            assert late.status == ("failed" if allowed is None else "completed")

    asyncio.run(main())


async def starts(bus: Bus) -> list[RunSubject]:
    """The runs that have begun, by their names."""
    filter = bus.subjects.start("*", "*")
    found = await bus.topology.subjects_of(bus.connection, bus.topology.log, filter)
    return [bus.subjects.parse_run(it) for it in found]
