"""People outside, with their own permissions only, use runs; and not those of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_bus.bus import Bus
from sandstream_bus.errors import InvalidSubject, PayloadTooLarge, PermissionDenied
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.fresh import fresh_many
from sandstream_bus.wire.headers import MSG_ID
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    CancelRequested,
    LiveEvent,
    RunDone,
    RunReopened,
)
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer
from support.runs import done, finished, new_run, started
from support.servers.outsiders import guarded_server, outsider, settings_of
from support.waiting import eventually

from sandstream import Agent, Client, RunConfig, function_tool
from sandstream._inspect.run_lists import list_open
from sandstream._wire.asks import AskRefused, AskUnanswered, NotYourName
from sandstream.approvals import AlreadyDecided
from sandstream.exceptions import RetryRefused
from sandstream.testing import Conversation, ScriptedModel, error, script_for, text, tool_call
from sandstream.worker import AgentWorker

pytestmark = pytest.mark.timeout(60)


@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    """Give money back."""
    return f"refunded {amount}"


@function_tool
def free() -> str:
    """Do something that needs nobody."""
    return "ok"


TILL = Agent(name="till", tools=[refund], model="gpt-4.1")
OFFICE = Agent(name="office", tools=[TILL.as_tool("ask_till", "Ask the till.")], model="gpt-4.1")
OPERATOR = ("sandstream.ask.*.>", "sandstream.alive.>", "$JS.API.STREAM.MSG.GET.SANDSTREAM_PARKED")
USERS = [outsider("alice"), outsider("bob"), outsider("ops", publish=OPERATOR)]


class Shop:
    """An installation on a server with permissions, and its users."""

    harness: Harness

    def __init__(
        self, server: NatsServer, actor: Client, models: ModelClient, stack: AsyncExitStack
    ) -> None:
        self.server = server
        self.actor = actor
        self._models = models
        self._stack = stack

    async def start_harness(self) -> None:
        self.harness = Harness(self.actor.bus, self._models)
        await self.harness.start()
        self._stack.push_async_callback(self.harness.stop)

    async def user(self, name: str) -> Client:
        settings = settings_of(self.server, name, name)
        return await self._stack.enter_async_context(await Client.connect(settings))


@asynccontextmanager
async def shop(
    directory: Path,
    conversations: list[Any],
    *,
    harness: bool = True,
    users: list[dict[str, Any]] | None = None,
) -> AsyncIterator[Shop]:
    with guarded_server(directory, users or USERS) as server:
        async with AsyncExitStack() as stack:
            actor = await stack.enter_async_context(
                await Client.connect(settings_of(server, "actor"))
            )
            model = await stack.enter_async_context(
                ScriptedModel(conversations=conversations, strict=False)
            )
            models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
            stack.push_async_callback(models.aclose)
            place = Shop(server, actor, models, stack)
            if harness:
                worker = AgentWorker(actor.bus, {it.name: it for it in (TILL, OFFICE)}, pool="app")
                await worker.start()
                stack.push_async_callback(worker.stop)
                await place.start_harness()
            yield place


def asks_for_refund(about: str) -> Conversation:
    return script_for(about, [tool_call("refund", {"amount": 12}), text("She has it.")])


async def waits(client: Client, run: str) -> None:
    async def look() -> bool:
        return bool(await client.events(run)) and (await client.get(run)).status == "waiting"

    await eventually(look)


def test_alice_submits_follows_approves_and_hears_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [asks_for_refund("Ann wants")]) as it:
            alice = await it.user("alice")
            run = await alice.submit("till", "Ann wants 12 euros back.", key="refund", stream=True)
            assert run == "alice=refund"
            seen: list[LogEvent | LiveEvent] = []

            async def follow() -> None:
                async for event in alice.follow(run, deltas=True):
                    seen.append(event)

            following = asyncio.ensure_future(follow())
            await waits(alice, run)
            (waiting,) = await alice.approvals()  # though she may not read the index of open runs
            assert (waiting.run_id, waiting.root_run, waiting.tool) == (run, run, "refund")
            assert [it.run_id for it in await list_open(alice.bus, limit=9)] == [run]
            question = await alice.approve(run, by="somebody else")
            assert (question.tool, question.run_id) == ("refund", run)
            end = await alice.wait(run)
            await following
            assert bytes(end.output) == b'"She has it."'
            assert any(isinstance(event, LiveEvent) for event in seen)
            events = [event for event in seen if isinstance(event, LogEvent)]
            stored = await it.actor.bus.log.read(run)
            assert [e.sequence for e in events] == [e.sequence for e in stored]
            decided = [e.event for e in stored if isinstance(e.event, ApprovalDecided)]
            assert [e.by for e in decided] == ["alice"]  # not what she says of herself
            assert await alice.submit("till", "Ann wants 12 euros back.", key="refund") == run
            assert [summary.run_id for summary in await alice.list()] == [run]
            assert await alice.approvals() == []

    asyncio.run(main())


def test_the_key_of_another_user_swallows_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [script_for("hi", [text("Hello.")])] * 2) as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            runs = [await who.submit("till", "hi", key="same") for who in (bob, alice)]
            assert runs == ["bob=same", "alice=same"]
            assert [(await alice.wait(run)).status for run in runs] == ["completed"] * 2

    asyncio.run(main())


def test_a_message_id_of_a_user_swallows_no_task_of_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [script_for("hi", [text("Hello.")])] * 2) as it:
            alice = await it.user("alice")
            subject = it.actor.bus.subjects.ask_task("alice", "till")
            await alice.bus.connection.publish(subject, b'{"input": "hi"}', msg_id="report-7")
            run = await it.actor.submit("till", "hi", key="report-7")
            assert run == "report-7"
            assert (await it.actor.wait(run)).status == "completed"

    asyncio.run(main())


def test_what_was_refused_can_be_redriven(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, []) as it:
            bob, actor = await it.user("bob"), it.actor
            subject = actor.bus.subjects.ask_run("bob", "alice=x", "cancel")
            await bob.bus.connection.publish(subject, b'{"reason": "bob"}', msg_id="m")
            assert "belongs to the user alice" in await _parked(actor.bus, 1)
            assert await actor.redrive("asks/1") == 2
            assert "belongs to the user alice" in await _parked(actor.bus, 2)
            # a publish of ours would be refused: the subject has a wildcard
            await actor.bus.connection.request(
                "sandstream.run.*.result.main", b"{", headers={MSG_ID: "odd"}
            )
            entry = await eventually(lambda: _odd(actor), what="parked")
            with pytest.raises(InvalidSubject):
                await actor.redrive(entry)

    asyncio.run(main())


async def _odd(client: Client) -> str | None:
    """What is parked although no run can have that name."""
    return next((it.id for it in await client.parked() if "run.*." in it.parked.subject), None)


def test_alice_cancels_and_says_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [asks_for_refund("Ann wants")]) as it:
            alice = await it.user("alice")
            run = await alice.submit("till", "Ann wants 12 euros back.")
            await waits(alice, run)
            sequence = await alice.send_input(run, "Be quick.", by="bob")
            events = {e.sequence: e.event for e in await it.actor.events(run)}
            staged = events[sequence]
            assert staged.__struct_config__.tag == "input.staged"
            assert getattr(staged, "by", "") == "alice"
            summary = await alice.cancel(run, reason="enough")
            assert summary.status == "cancelled"
            with pytest.raises(Exception, match="has ended"):
                await alice.send_input(run, "Too late.")

    asyncio.run(main())


def test_bob_can_do_nothing_to_the_run_of_alice(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [asks_for_refund("Ann wants")]) as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            run = await alice.submit("till", "Ann wants 12 euros back.")
            await waits(alice, run)
            before = await it.actor.events(run)
            for attempt in (bob.approve(run), bob.cancel(run), bob.send_input(run, "Give me all.")):
                with pytest.raises(NotYourName, match="belongs to the user alice, so bob may not"):
                    await attempt
            # what his permissions let him publish, a harness refuses
            subjects, connection = bob.bus.subjects, bob.bus.connection
            decided = ApprovalDecided(call="t1-0", approve=True)
            for kind, message in (("approval", decided), ("cancel", CancelRequested())):
                subject = subjects.ask_run("bob", run, kind)  # type: ignore[arg-type]
                data = msgspec.json.encode(message)
                ack = await connection.publish(subject, data, msg_id=f"bob-{kind}")
                reason = await _parked(it.actor.bus, ack.seq)
                assert "belongs to the user alice, so bob may not" in reason
            with pytest.raises(PermissionDenied):
                await connection.publish(subjects.cancel(run), b"{}", msg_id="direct")
            assert await it.actor.events(run) == before

    asyncio.run(main())


def test_alice_retries_her_run_and_bob_does_not(tmp_path: Path) -> None:
    async def main() -> None:
        scripts = [script_for("Ann asks", [error(400), text("Yes.")])]
        async with shop(tmp_path, scripts) as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            run = await alice.submit("till", "Ann asks.", key="retried")
            assert (await alice.wait(run)).status == "failed"
            before = await it.actor.events(run)
            with pytest.raises(NotYourName, match="belongs to the user alice, so bob may not"):
                await bob.retry(run)
            subject = bob.bus.subjects.ask_run("bob", run, "retry")
            ack = await bob.bus.connection.publish(subject, b"{}", msg_id="bob-retry")
            assert "belongs to the user alice, so bob may not" in await _parked(
                it.actor.bus, ack.seq
            )
            with pytest.raises(PermissionDenied):
                turn = bob.bus.subjects.turn(run, "main")
                await bob.bus.connection.publish(turn, b"{}", msg_id="direct")
            # what only the harness knows is refused there, too
            subject = alice.bus.subjects.ask_run("alice", run, "retry")
            body = b'{"budget": {"tokens": 5}, "forgets": ["t1-0"]}'
            ack = await alice.bus.connection.publish(subject, body, msg_id="alice-odd")
            assert "unknown field 'forgets'" in await _parked(it.actor.bus, ack.seq)
            assert await it.actor.events(run) == before
            assert (await alice.retry(run, reason="once more")).error is None
            assert bytes((await alice.wait(run)).output) == b'"Yes."'
            reopened = [e.event for e in await it.actor.events(run)]
            found = [e for e in reopened if isinstance(e, RunReopened)]
            assert [(e.by, e.reason) for e in found] == [("alice", "once more")]
            with pytest.raises(RetryRefused, match="has completed"):
                await alice.retry(run)

    asyncio.run(main())


def test_a_user_may_not_have_more_than_the_worker_allows(tmp_path: Path) -> None:
    async def main() -> None:
        again = [tool_call("free", {}), tool_call("free", {}), text("Yes.")]
        async with shop(tmp_path, [script_for("Ann asks", again)]) as it:
            limited = Agent(name="limited", tools=[free], model="gpt-4.1")
            budget: Any = {"tool_calls": 1}  # a mapping is taken too
            config = RunConfig(budget=budget)
            worker = AgentWorker(it.actor.bus, {"limited": limited}, pool="l", config=config)
            await worker.start()
            try:
                alice = await it.user("alice")
                run = await alice.submit("limited", "Ann asks.", key="greedy")
                assert (await alice.wait(run)).status == "budget"
                subject = alice.bus.subjects.ask_run("alice", run, "retry")
                body = b'{"budget": {"tool_calls": 9}}'
                ack = await alice.bus.connection.publish(subject, body, msg_id="more")
                assert "would fail again at once" in await _parked(it.actor.bus, ack.seq)
            finally:
                await worker.stop()

    asyncio.run(main())


def test_an_operator_asks_in_the_name_of_the_owner(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [asks_for_refund("Ann wants")]) as it:
            alice, ops = await it.user("alice"), await it.user("ops")
            run = await alice.submit("till", "Ann wants 12 euros back.")
            await waits(alice, run)
            assert (await ops.cancel(run)).status == "cancelled"
            shared = await it.actor.submit("till", "Ann wants 12 euros back.")
            await waits(ops, shared)
            with pytest.raises(NotYourName, match="belongs to no user"):
                await alice.cancel(shared)
            await ops.reject(shared, message="No.", by="carol")
            events = await it.actor.events(shared)
            (decided,) = [e.event for e in events if isinstance(e.event, ApprovalDecided)]
            assert (decided.approve, decided.by) == (False, "carol")

    asyncio.run(main())


def test_of_two_answers_the_second_hears_of_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [asks_for_refund("Ann wants")], harness=True) as it:
            alice, ops = await it.user("alice"), await it.user("ops")
            run = await alice.submit("till", "Ann wants 12 euros back.")
            await waits(alice, run)
            answers = await asyncio.gather(
                alice.approve(run), ops.reject(run), return_exceptions=True
            )
            late = [answer for answer in answers if isinstance(answer, Exception)]
            assert len(late) == 1 and isinstance(late[0], AlreadyDecided), answers
            assert late[0].approved is isinstance(answers[1], AlreadyDecided)
            with pytest.raises(AlreadyDecided):
                await alice.approve(run, "t1-0")

    asyncio.run(main())


def test_a_question_of_a_run_below_is_answered_at_the_top(tmp_path: Path) -> None:
    async def main() -> None:
        order = [tool_call("ask_till", {"input": "Ann wants 12 euros back."}), text("All is well.")]
        scripts = [script_for("order 17", order), asks_for_refund("Ann wants")]
        async with shop(tmp_path, scripts) as it:
            alice, bob, ops = [await it.user(name) for name in ("alice", "bob", "ops")]
            run = await alice.submit("office", "order 17", key="17")
            await waits(alice, run)
            (waiting,) = await alice.approvals()
            assert (waiting.run_id, waiting.root_run) == ("alice=17_t1-0", run)
            for below in (run, waiting.run_id):
                with pytest.raises(NotYourName):
                    await bob.reject(below)
            answers = await asyncio.gather(
                alice.approve(run), ops.reject(waiting.run_id), return_exceptions=True
            )
            late = [answer for answer in answers if isinstance(answer, Exception)]
            assert len(late) == 1 and isinstance(late[0], AlreadyDecided), answers
            assert bytes((await alice.wait(run)).output) == b'"All is well."'
            events = await it.actor.events(waiting.run_id)
            decided = [e.event for e in events if isinstance(e.event, ApprovalDecided)]
            assert decided[0].approve is isinstance(answers[1], AlreadyDecided)

    asyncio.run(main())


def test_an_answer_below_may_come_before_the_one_from_the_top(tmp_path: Path) -> None:
    async def main() -> None:
        order = [tool_call("ask_till", {"input": "Ann wants 12 euros back."}), text("All is well.")]
        scripts = [script_for("order 17", order), asks_for_refund("Ann wants")]
        async with shop(tmp_path, scripts) as it:
            alice, bus = await it.user("alice"), it.actor.bus
            run = await alice.submit("office", "order 17", key="17")
            await waits(alice, run)
            await it.harness.stop()
            before = await bus.topology.stream_state(bus.connection, bus.topology.requests)
            approving = asyncio.ensure_future(alice.approve(run))

            async def has_asked() -> bool:
                now = await bus.topology.stream_state(bus.connection, bus.topology.requests)
                return bool(now["last_seq"] > before["last_seq"])

            await eventually(has_asked)
            await it.actor.reject("alice=17_t1-0", by="the boss")
            await it.start_harness()
            with pytest.raises(AlreadyDecided, match="was rejected by the boss"):
                await approving

    asyncio.run(main())


def test_a_conversation_belongs_to_its_user(tmp_path: Path) -> None:
    async def main() -> None:
        conversations = [script_for(word, [text(word)]) for word in ("one", "two", "three", "four")]
        async with shop(tmp_path, conversations) as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            owners = ((bob, "one"), (it.actor, "two"), (alice, "three"))
            for who, word in owners:
                await alice.wait(await who.submit("till", word, session="trip"))
            read = it.actor.bus.conversations.read
            for name in ("@bob/trip", "trip", "@alice/trip"):
                assert len((await read(name)).history) == 2  # nobody has added to another's
            own = await alice.submit("till", "four", session="@bob/trip")
            assert (await alice.wait(own)).status == "completed"
            assert len((await read("@bob/trip")).history) == 2
            assert len((await read("@alice/@bob/trip")).history) == 2
            foreign = await it.actor.submit("till", "five", session="@bob/trip")
            refused = await it.actor.wait(foreign)
            assert refused.error is not None and "belongs to a user" in refused.error.message

    asyncio.run(main())


def test_too_big_a_task_is_refused_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [], harness=False) as it:
            alice = await it.user("alice")
            with pytest.raises(
                PayloadTooLarge,
                match=r"a task of the user alice has \d+ bytes; the limit is 1048576",
            ) as refused:
                await alice.submit("till", "x" * 2_000_000)
            assert refused.value.size_bytes > 2_000_000
            bus = it.actor.bus
            requests = await fresh_many(bus.connection, bus.topology.requests, ">", after=0)
            assert requests == []

    asyncio.run(main())


def test_without_a_harness_the_user_hears_why_nothing_happens(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [], harness=False) as it:
            alice, ops = await it.user("alice"), await it.user("ops")
            run = RunId("alice=left")
            s = it.actor.bus.subjects
            await it.actor.bus.log.append(run, s.start(run, "main"), started(), after=0, msg_id="1")
            assert alice.asks is not None
            alice.asks.patience_s = 0.3
            with pytest.raises(AskUnanswered, match=r"did not reach the log.*asks/1"):
                await alice.cancel(run)
            with pytest.raises(AskUnanswered, match="no harness is running that takes requests"):
                await ops.cancel(run)

    asyncio.run(main())


def test_a_refused_request_says_why_if_the_user_may_know(tmp_path: Path) -> None:
    async def main() -> None:
        async with shop(tmp_path, [asks_for_refund("Ann wants")]) as it:
            ops = await it.user("ops")
            run = await ops.submit("till", "Ann wants 12 euros back.")
            await waits(ops, run)
            assert ops.asks is not None
            with pytest.raises(AskRefused, match="does not fit its schema"):
                await ops.asks.of_run(run, "approval", CancelRequested())

    asyncio.run(main())


def test_an_event_too_big_to_read_is_left_out_and_an_end_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with shop(tmp_path, [], harness=False) as it:
            alice = await it.user("alice")
            bus, run = it.actor.bus, new_run()
            s = bus.subjects
            big = json.dumps("x" * 300_000).encode()
            await bus.log.append(run, s.start(run, "main"), started(), after=0, msg_id="1")
            following = asyncio.ensure_future(_kinds(alice.bus, run))
            waiting = asyncio.ensure_future(alice.wait(run))
            await bus.log.send(s.result(run, "main"), finished(0, big), msg_id="2")
            await bus.log.send(s.done(run), done(big), msg_id="3")
            assert await following == ["run.started", "run.done"]
            for end in (await waiting, await alice.wait(run)):
                assert end.error is not None and end.error.code == "bus.object_denied"
                assert "may not read" in end.error.message and "OBJ_" in end.error.message
            assert await _kinds(alice.bus, run) == ["run.started", "run.done"]
            assert (await alice.get(run)).status == "failed"
            assert "too big to read for this user" in caplog.text
            assert await _kinds(bus, run) == ["run.started", "call.finished", "run.done"]

    asyncio.run(main())


async def _parked(bus: Bus, sequence: int) -> str:
    """Why the request at that sequence was refused."""
    reasons: list[str] = []

    async def look() -> bool:
        reasons[:] = [
            it.parked.reason for it in await bus.parking.list() if it.id == f"asks/{sequence}"
        ]
        return bool(reasons)

    await eventually(look)
    return reasons[0]


async def _kinds(bus: Bus, run: RunId) -> list[str]:
    return [str(e.event.__struct_config__.tag) async for e in bus.follow.run(run)]  # type: ignore


def test_a_user_who_may_read_objects_reads_big_events(tmp_path: Path) -> None:
    async def main() -> None:
        objects = "$JS.API.STREAM.MSG.GET.OBJ_sandstream-objects"
        users = [outsider("carol", publish=(objects,))]
        async with shop(tmp_path, [], harness=False, users=users) as it:
            carol = await it.user("carol")
            run, s = new_run(), it.actor.bus.subjects
            big = done(json.dumps("x" * 900_000).encode())  # two chunks
            await it.actor.bus.log.send(s.done(run), big, msg_id="1")
            assert await carol.wait(run) == big

    asyncio.run(main())


def test_a_user_is_refused_nothing_but_one_direct_get(tmp_path: Path) -> None:
    """Each violation is an error in the server's log, and alarms somebody."""

    async def main() -> None:
        async with shop(tmp_path, [script_for("hi", [text("Hello.")])]) as it:
            alice = await it.user("alice")
            run = await alice.submit("till", "hi")
            await alice.wait(run)
            for _ in range(2):
                assert [e async for e in alice.follow(run)]
                assert (await alice.get(run)).status == "completed"
                assert len(await alice.list()) == 1

    asyncio.run(main())
    violations = [
        line for line in (tmp_path / "nats.log").read_text().splitlines() if "Violation" in line
    ]
    assert len(violations) == 1 and "$JS.API.DIRECT.GET.SANDSTREAM_LOG" in violations[0]


def test_a_user_who_may_only_ask_can_submit_and_listen(tmp_path: Path) -> None:
    async def main() -> None:
        users = [outsider("dave", reads=False)]
        hello = [script_for("hi", [text("Hello.")])]
        async with shop(tmp_path, hello, users=users) as it:
            dave = await it.user("dave")
            ended: asyncio.Future[RunDone] = asyncio.get_running_loop().create_future()

            async def listen() -> None:
                async for event in dave.bus.follow.all():
                    if event is not None and isinstance(event.event, RunDone):
                        ended.set_result(event.event)

            listening = asyncio.ensure_future(listen())
            await dave.bus.connection.flush()
            run = await dave.submit("till", "hi")
            assert bytes((await ended).output) == b'"Hello."'
            listening.cancel()
            with pytest.raises(PermissionDenied, match=r"STREAM\.MSG\.GET\.SANDSTREAM_LOG"):
                await dave.wait(run)

    asyncio.run(main())
