"""Conversations on the bus: one run at a time, each seeing all before it; and input that comes
while a run is under way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelAnswer, ModelClient, ModelRequest, Route
from sandstream_actors.model.client import OnEvent
from sandstream_actors.run.forced_ends import end_parked_run
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    InputStaged,
    RunDone,
    RunReopened,
    RunStarted,
    RunWaiting,
    Task,
)
from sandstream_bus.wire.specs import AgentSpec, GraphSpec, RunOptions, SessionUse
from sandstream_bus.wire.subjects import RunId, run_id_of_key

from sandstream import (
    Agent,
    BusSession,
    CallModelData,
    Client,
    ModelInputData,
    OpenAIProvider,
    RunConfig,
    Runner,
    SessionSettings,
    function_tool,
)
from sandstream._run.process import Process
from sandstream.exceptions import ConversationBusy
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, error, text, tool_call
from sandstream.worker import AgentWorker

pytestmark = pytest.mark.usefixtures("home")
Item = dict[str, Any]


@function_tool
def double(x: int) -> str:
    """Double it."""
    return str(2 * x)


@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    """Give it back."""
    return f"refunded {amount}"


BOT: Agent[Any] = Agent(name="bot", model="gpt-4.1", tools=[double, refund])


class Gate:
    """Models whose calls wait until they may go on, if one asks for it."""

    def __init__(self, models: ModelClient) -> None:
        self._models = models
        self.seen: list[list[str]] = []
        self.entered = asyncio.Event()
        self._go = asyncio.Event()
        self.open()

    def close(self) -> None:
        self.entered.clear()
        self._go.clear()

    def open(self) -> None:
        self._go.set()

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        self.seen.append(texts(request.input))
        self.entered.set()
        await self._go.wait()
        return await self._models.call(request, on_event)


class Deployed:
    def __init__(self, client: Client, gate: Gate, model: ScriptedModel) -> None:
        self.client = client
        self.bus = client.bus
        self.gate = gate
        self.model = model

    async def history(self, session: str) -> list[str]:
        return texts((await self.bus.conversations.read(session)).history)

    async def stage(self, run: str, input: str) -> None:
        staged = InputStaged(input=input)
        await self.bus.log.send(self.bus.subjects.input(run), staged, msg_id=f"{run}:{input}")

    async def outcome(self, run: str) -> str:
        done = await self.client.wait(run)
        return done.error.code if done.error else str(msgspec.json.decode(done.output))

    async def until_queued(self, session: str, runs: int) -> None:
        """Until so many runs wait for, or have, the conversation."""
        while len((await self.bus.conversations.read(session)).waiting) < runs:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def deployed(steps: list[Step], prefix: str) -> AsyncIterator[Deployed]:
    """A harness and a worker on an installation of its own."""
    settings = Settings.from_env(
        {"SANDSTREAM_PREFIX": prefix, "SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
    )
    async with ScriptedModel(steps) as model, await Client.connect(settings) as client:
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        gate = Gate(models)
        harness = Harness(client.bus, gate)
        worker = AgentWorker(client.bus, {BOT.name: BOT}, pool="app")
        await harness.start()
        await worker.start()
        try:
            async with asyncio.timeout(40):
                yield Deployed(client, gate, model)
        finally:
            await worker.stop()
            await harness.stop()
            await models.aclose()


def texts(items: list[Raw]) -> list[str]:
    return [_text(msgspec.json.decode(item)) for item in items]


def _text(item: Item) -> str:
    content = item.get("content", item.get("output", item.get("name")))
    return content[0]["text"] if isinstance(content, list) else str(content)


# --- the queue ------------------------------------------------------------------------------------


def test_runs_of_one_conversation_come_one_after_the_other() -> None:
    async def main() -> None:
        count = 20
        async with deployed([text("ok").times(count + 1)], "cr1") as it:
            runs = await asyncio.gather(
                *(it.client.submit("bot", f"task {n}", session="s1") for n in range(count))
            )
            other = await it.client.submit("bot", "elsewhere", session="s2", key="other")
            ends = await asyncio.gather(*map(it.outcome, runs))
            assert ends == ["ok"] * count
            said = await it.history("s1")
            assert sorted(said[::2]) == sorted(f"task {n}" for n in range(count))
            assert said[1::2] == ["ok"] * count
            own = [seen for seen in it.gate.seen if "elsewhere" not in seen]
            assert own == [said[: 2 * n + 1] for n in range(count)]
            assert await it.outcome(other) == "ok"
            assert await it.history("s2") == ["elsewhere", "ok"]

    asyncio.run(main())


def test_whole_runs_with_tools_join_the_history() -> None:
    async def main() -> None:
        steps = [
            tool_call("double", {"x": 1}),
            text("two"),
            tool_call("double", {"x": 2}),
            text("four"),
        ]
        async with deployed(steps, "cr2") as it:
            it.gate.close()
            first = await it.client.submit("bot", "double 1", session="s")
            await it.until_queued("s", 1)
            task = Task(input="double 2", session="s")  # as any other client would
            await it.bus.connection.publish(
                it.bus.subjects.task("bot"), msgspec.json.encode(task), msg_id="raw"
            )
            await it.until_queued("s", 2)
            it.gate.open()
            assert [await it.outcome(first), await it.outcome("raw")] == ["two", "four"]
            whole = ["double 1", "double", "2", "two", "double 2", "double", "4", "four"]
            assert await it.history("s") == whole
            assert it.gate.seen == [whole[:1], whole[:3], whole[:5], whole[:7]]

    asyncio.run(main())


def test_a_run_that_does_not_want_to_wait_is_refused() -> None:
    async def main() -> None:
        async with deployed([text("ok").times(2)], "cr3") as it:
            it.gate.close()
            first = await it.client.submit("bot", "one", session="s")
            await it.gate.entered.wait()
            second = await it.client.submit("bot", "two", session="s", session_busy="refuse")
            assert await it.outcome(second) == "conversation_busy"
            it.gate.open()
            assert await it.outcome(first) == "ok"
            third = await it.client.submit("bot", "three", session="s", session_busy="refuse")
            assert await it.outcome(third) == "ok"
            assert await it.history("s") == ["one", "ok", "three", "ok"]

    asyncio.run(main())


def test_a_queued_run_that_is_cancelled_leaves_the_queue() -> None:
    async def main() -> None:
        async with deployed([text("ok").times(2)], "cr4") as it:
            it.gate.close()
            runs = []
            for n in range(3):
                runs.append(await it.client.submit("bot", f"task {n}", session="s"))
                await it.until_queued("s", n + 1)
            assert (await it.client.cancel(runs[1])).status == "cancelled"
            await it.gate.entered.wait()
            it.gate.open()
            assert [await it.outcome(runs[n]) for n in (0, 2)] == ["ok", "ok"]
            assert await it.history("s") == ["task 0", "ok", "task 2", "ok"]
            assert len(it.gate.seen) == 2  # nobody was woken who was at work

    asyncio.run(main())


def test_a_cancelled_holder_whose_process_is_gone_lets_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandstream.client._CANCEL_PATIENCE_S", 0.1)

    async def main() -> None:
        async with deployed([text("ok")], "cr5") as it:
            await it.bus.conversations.join("s", "ghost", "gone")
            started = RunStarted(
                graph=GraphSpec(
                    start="a", agents={"a": AgentSpec(name="a", host="gone", model="m")}
                ),
                input=[],
                options=RunOptions(session=SessionUse(id="s")),
                pool="gone",
            )
            ghost = RunId("ghost")
            await it.bus.log.append(
                ghost, it.bus.subjects.start(ghost, "gone"), started, after=0, msg_id="ghost"
            )
            waiting = await it.client.submit("bot", "hi", session="s")
            await it.until_queued("s", 2)
            assert (await it.client.cancel("ghost")).status == "cancelled"
            assert await it.outcome(waiting) == "ok"
            assert await it.history("s") == ["hi", "ok"]

    asyncio.run(main())


def test_an_input_that_no_model_accepts_does_not_spoil_the_conversation() -> None:
    async def main() -> None:
        steps = [error(400, message="No.").when("poison").forever(), text("ok").times(2)]
        async with deployed(steps, "cr6") as it:
            ends = []
            for words in ("one", "poison", "two"):
                run = await it.client.submit("bot", words, session="s")
                ends.append(await it.outcome(run))
            assert ends == ["ok", "model_http", "ok"]
            assert await it.history("s") == ["one", "ok", "two", "ok"]

    asyncio.run(main())


def test_a_reopened_run_that_had_left_adds_what_it_says() -> None:
    async def main() -> None:
        async with deployed([text("ok").times(3)], "cr7") as it:
            it.gate.close()
            first = await it.client.submit("bot", "one", session="s")
            await it.gate.entered.wait()
            second = await it.client.submit("bot", "two", session="s")
            await it.until_queued("s", 2)
            await end_parked_run(it.bus, first, "told so")
            it.gate.open()
            assert await it.outcome(second) == "ok"
            assert await it.history("s") == ["two", "ok"]
            subject = it.bus.subjects.turn(first, "main")
            reopened = await it.bus.log.send(subject, RunReopened(reason="again"), msg_id="again")
            assert await _end_after(it, first, reopened.seq) == "completed"
            assert (await it.history("s"))[2:4] == ["one", "ok"]

    asyncio.run(main())


async def _end_after(it: Deployed, run: str, sequence: int) -> str:
    async for event in it.client.follow(run, after=sequence):
        if isinstance(event, LogEvent) and isinstance(event.event, RunDone):
            return event.event.status
    raise AssertionError("it has no end")


def test_what_is_too_large_for_the_conversation_does_not_block_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sandstream_bus.logs.codec.INLINE_LIMIT_BYTES", 9000)
    monkeypatch.setattr("sandstream_bus.logs.codec.MESSAGE_LIMIT_BYTES", 9000)

    async def main() -> None:
        async with deployed([text("y" * 5000), text("ok").times(2)], "cr8") as it:
            first = await it.client.submit("bot", "x" * 5000, session="s")
            assert await it.outcome(first) == "y" * 5000
            for n in range(2):
                run = await it.client.submit("bot", f"{n}" * 5000, session="s")
                assert await it.outcome(run) == "ok"
            assert [len(it) for it in await it.history("s")] == [5000, 2, 5000, 2]
            # by now the history is more than a run can read
            run = await it.client.submit("bot", "three", session="s")
            assert await it.outcome(run) == "conversation_too_large"
            await it.bus.conversations.clear("s")

    asyncio.run(main())
    assert "cannot be added to its conversation" in caplog.text


# --- from Runner.run ------------------------------------------------------------------------------


def test_a_session_on_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(history: list[Item], new: list[Item]) -> list[Item]:
        return [history[-1], *new]

    async def main() -> None:
        steps = [tool_call("double", {"x": 4}), text("8"), text("still 8"), text("yes"), text("no")]
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            session = BusSession("runner")
            await Runner.run(BOT, "double 4", session=session)
            result = await Runner.run(BOT, "and now", session=BusSession("runner"))
            said = ["double 4", "double", "8", "8", "and now", "still 8"]
            assert [_text(it) for it in await session.get_items()] == said
            assert result.to_input_list() == await session.get_items()
            config = RunConfig(session_input_callback=merge)
            await Runner.run(BOT, "sure", session=session, run_config=config)
            window = BusSession("runner", session_settings=SessionSettings(limit=1))
            streamed = Runner.run_streamed(BOT, "really", session=window)
            _ = [event async for event in streamed.stream_events()]
            sent: list[Any] = [request["input"] for request in model.requests]
            assert [[_text(it) for it in items] for items in sent[2:]] == [
                said[:5],
                ["still 8", "sure"],
                ["yes", "really"],
            ]
            said += ["sure", "yes", "really", "no"]
            assert [_text(it) for it in await session.get_items()] == said

    asyncio.run(main())


def test_a_session_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        entered, go = asyncio.Event(), asyncio.Event()

        @function_tool
        async def wait() -> str:
            entered.set()
            await go.wait()
            return "done"

        slow: Agent[Any] = Agent(name="slow", model="gpt-4.1", tools=[wait])
        async with ScriptedModel([tool_call("wait", {}), text("first"), text("second")]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            first = asyncio.create_task(Runner.run(slow, "one", session=BusSession("busy")))
            await entered.wait()
            with pytest.raises(ConversationBusy, match="busy"):
                await Runner.run(slow, "two", session=BusSession("busy", busy="refuse"))
            queued = asyncio.create_task(Runner.run(slow, "three", session=BusSession("busy")))
            go.set()
            assert [(await first).final_output, (await queued).final_output] == ["first", "second"]
            assert _text((await queued).input[-2]) == "first"  # type: ignore[arg-type]

    asyncio.run(main())


# --- more input for a run under way ---------------------------------------------------------------


def test_input_that_comes_during_the_final_answer_gets_a_turn() -> None:
    async def main() -> None:
        async with deployed([text("first"), text("second")], "cr9") as it:
            it.gate.close()
            run = await it.client.submit("bot", "hi", session="s")
            await it.gate.entered.wait()
            await it.stage(run, "and more")
            it.gate.open()
            assert await it.outcome(run) == "second"
            said = ["hi", "first", "and more", "second"]
            assert it.gate.seen == [["hi"], said[:3]]
            assert await it.history("s") == said

    asyncio.run(main())


def test_input_that_comes_during_a_turn_is_seen_once() -> None:
    async def main() -> None:
        steps = [tool_call("double", {"x": 1}), tool_call("double", {"x": 2}), text("done")]
        async with deployed(steps, "cr10") as it:
            it.gate.close()
            run = await it.client.submit("bot", "hi")
            await it.gate.entered.wait()
            await it.stage(run, "more")
            await it.stage(run, "and more")
            it.gate.open()
            assert await it.outcome(run) == "done"
            said = ["hi", "double", "2", "more", "and more", "double", "4"]
            assert it.gate.seen == [["hi"], said[:5], said]

    asyncio.run(main())


@pytest.mark.parametrize("is_hosted", [False, True])
def test_input_that_comes_while_a_filter_or_a_model_of_the_users_works(
    is_hosted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What asks the model is the tool host here."""

    async def main() -> None:
        async with ScriptedModel([text("first"), text("second")]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            bus = (await Process.of_this_loop()).bus
            key = f"filter-{is_hosted}"
            seen: list[list[str]] = []

            async def look(data: CallModelData[Any]) -> ModelInputData:
                seen.append([_text(item) for item in data.model_data.input])
                if len(seen) == 1:
                    staged = InputStaged(input="and more")
                    run = run_id_of_key(key)
                    await bus.log.send(bus.subjects.input(run), staged, msg_id=f"{key}:staged")
                return data.model_data

            provider = OpenAIProvider()
            config = RunConfig(call_model_input_filter=look, run_key=key)
            if is_hosted:
                config.model_provider = provider
            result = await Runner.run(BOT, "hi", run_config=config)
            await provider.aclose()
            assert result.final_output == "second"
            assert seen == [["hi"], ["hi", "first", "and more"]]

    asyncio.run(main())


def test_a_task_has_one_keeper_of_its_conversation() -> None:
    async def main() -> None:
        async with deployed([], "cr12") as it:
            task = Task(input="hi", session="s", conversation_id="conv_1")
            await it.bus.connection.publish(
                it.bus.subjects.task("bot"), msgspec.json.encode(task), msg_id="both"
            )
            assert await it.outcome("both") == "user_error"
            assert (await it.bus.conversations.read("s")).waiting == []

    asyncio.run(main())


def test_input_that_comes_while_people_are_asked() -> None:
    async def main() -> None:
        async with deployed([tool_call("refund", {"amount": 5}), text("done")], "cr11") as it:
            run = await it.client.submit("bot", "hi", session="s")
            async for event in it.client.follow(run):
                if isinstance(event, LogEvent) and isinstance(event.event, RunWaiting):
                    break
            await it.stage(run, "hurry")
            await it.bus.log.send(
                it.bus.subjects.approval_decided(run),
                ApprovalDecided(call="t1-0", approve=True),
                msg_id="yes",
            )
            assert await it.outcome(run) == "done"
            assert it.gate.seen[1] == ["hi", "refund", "refunded 5", "hurry"]
            assert await it.history("s") == [*it.gate.seen[1], "done"]

    asyncio.run(main())
