"""Deployed agents: workers, tasks from anybody, the client; and what happens to bad tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.run.forced_ends import end_parked_run
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.wire.messages import CallFinished, LiveEvent, RunDone
from sandstream_bus.wire.subjects import RunId
from support.model_requests import input_of

from sandstream import Agent, Client, RunContextWrapper, UserError, function_tool
from sandstream.client import RunNotFound
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, error, text, tool_call
from sandstream.worker import AgentWorker, agents_of, load_module

pytestmark = pytest.mark.usefixtures("home")


@function_tool
def greet(context: RunContextWrapper[dict[str, str]], name: str) -> str:
    """Greet somebody."""
    return f"hello {name} from {context.context['user']}"


GREETER = Agent(name="Greeter Bot", tools=[greet], model="gpt-4.1")


@asynccontextmanager
async def deployed(
    steps: list[Step],
    prefix: str,
    *,
    agents: dict[str, Agent[Any]] | None = None,
    strict: bool = True,
) -> AsyncIterator[tuple[Client, ScriptedModel, AgentWorker]]:
    """A harness and a worker on an installation of its own, and a client."""
    settings = Settings.from_env({"SANDSTREAM_PREFIX": prefix, **_home()})
    async with (
        ScriptedModel(steps, strict=strict) as model,
        await Client.connect(settings) as client,
    ):
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        harness = Harness(client.bus, models)
        worker = AgentWorker(client.bus, {GREETER.name: GREETER}, pool="app")
        await harness.start()
        await worker.start()
        try:
            yield client, model, worker
        finally:
            await worker.stop()
            await harness.stop()
            await models.aclose()


def _home() -> dict[str, str]:
    import os

    return {"SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}


def test_submit_follow_and_result() -> None:
    async def main() -> None:
        steps = [tool_call("greet", {"name": "Bob"}), text("done")]
        async with deployed(steps, "dep1") as (client, _, _):
            run = await client.submit("Greeter Bot", "hi", context={"user": "Ada"}, key="job-1")
            assert run == "job-1"
            done = await client.wait(run)
            assert done.status == "completed" and bytes(done.output) == b'"done"'
            events = [event async for event in client.follow(run)]
            sequences = [event.sequence for event in events if not isinstance(event, LiveEvent)]
            assert sequences == sorted(set(sequences)) and len(sequences) == 6
            results = [e.event.output for e in events if isinstance(e.event, CallFinished)]
            assert bytes(results[0]) == b'"hello Bob from Ada"'
            again = await client.submit("Greeter Bot", "hi", key="job-1")
            assert again == run and len(await client.events(run)) == 6
            summary = await client.get(run)
            assert (summary.status, summary.turns, summary.agent) == ("completed", 2, "Greeter Bot")
            assert [item.run_id for item in await client.list()] == [run]
            assert await client.agents() == ["Greeter Bot"]

    asyncio.run(main())


def test_a_follower_starts_anywhere() -> None:
    async def main() -> None:
        steps = [tool_call("greet", {"name": "B"}), text("x")]
        async with deployed(steps, "dep2") as (
            client,
            _,
            _,
        ):
            run = await client.submit("Greeter Bot", "hi", context={"user": "A"})
            await client.wait(run)
            every = await client.events(run)
            for index, first in enumerate(every):
                rest = (
                    [e async for e in client.follow(run, after=first.sequence)] if index < 5 else []
                )
                assert [e.sequence for e in rest if not isinstance(e, LiveEvent)] == [
                    e.sequence for e in every[index + 1 :]
                ]

    asyncio.run(main())


def test_streamed_task_gives_deltas() -> None:
    async def main() -> None:
        async with deployed([text("one two three")], "dep3") as (client, _, _):
            await client.submit("Greeter Bot", "warm-up-free", key="k", stream=True)
            seen = [event async for event in client.follow("k", deltas=True)]
            assert isinstance(seen[-1].event, RunDone)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"not json", "not valid JSON"),
        (b"{}", "missing required field `input`"),
        (b'{"input": 5}', "Expected `str | array`"),
        (b'["input"]', "Expected `object`"),
        (b'{"input": "x", "max_turns": "many"}', "$.max_turns"),
        (b"\xff\xfe", "not valid UTF-8"),
    ],
)
def test_a_malformed_task_is_parked_and_its_run_says_so(body: bytes, complaint: str) -> None:
    async def main() -> None:
        async with deployed([text("others go on")], f"bad{abs(hash(body)) % 10**8}") as (
            client,
            _,
            _,
        ):
            subject = client.bus.subjects.task("Greeter Bot")
            await client.bus.connection.publish(subject, body, msg_id="broken-1")
            done = await client.wait("broken-1")
            assert done.status == "failed" and done.error is not None
            assert done.error.code == "parked" and complaint in done.error.message
            (parked,) = await client.parked()
            assert complaint in parked.parked.reason
            other = await client.submit("Greeter Bot", "fine")
            assert (await client.wait(other)).status == "completed"

    asyncio.run(main())


def test_a_task_without_message_id_is_named_by_its_place() -> None:
    async def main() -> None:
        async with deployed([text("ok")], "dep4") as (client, _, _):
            import nats

            settings = client._opened.server
            assert settings is not None
            bare = await nats.connect(settings.url, user=settings.user, password=settings.password)
            ack = await bare.jetstream().publish(
                "dep4.task.Greeter=20Bot", b'{"input": "from anywhere"}'
            )
            done = await client.wait(f"task-{ack.seq}")
            assert done.status == "completed"
            await bare.close()

    asyncio.run(main())


def test_an_unknown_agent_ends_the_run_with_the_known_ones() -> None:
    async def main() -> None:
        async with deployed([], "dep5") as (client, _, _):
            run = await client.submit("Nobody", "hi")
            done = await client.wait(run)
            assert done.error is not None and done.error.code == "unknown_agent"
            assert "Greeter Bot" in done.error.message
            assert [item.status for item in await client.list()] == ["failed"]

    asyncio.run(main())


def test_bad_input_of_the_client() -> None:
    async def main() -> None:
        async with deployed([], "dep6") as (client, _, _):
            with pytest.raises(UserError, match="context must be JSON"):
                await client.submit("Greeter Bot", "hi", context={"socket": object()})
            with pytest.raises(UserError, match="input must be a string or a list"):
                await client.submit("Greeter Bot", 5)  # type: ignore[arg-type]
            with pytest.raises(UserError, match="name must not be empty"):
                await client.submit("", "hi")
            with pytest.raises(RunNotFound, match="there is no run 'nope'"):
                await client.get("nope")
            with pytest.raises(UserError, match="nothing is parked"):
                await client.redrive("nope")

    asyncio.run(main())


def test_a_task_of_megabytes_goes_by_reference_and_too_much_is_refused() -> None:
    async def main() -> None:
        async with deployed([text("long"), text("x")], "dep7", strict=False) as (client, model, _):
            run = await client.submit("Greeter Bot", "y" * 2_000_000)
            assert (await client.wait(run)).status == "completed"
            assert len(input_of(model.requests[0])[0]["content"]) == 2_000_000
            from sandstream_bus.errors import PayloadTooLarge

            with pytest.raises(PayloadTooLarge, match="the limit is 33554432 bytes"):
                await client.submit("Greeter Bot", "y" * 34_000_000)

    asyncio.run(main())


def test_cancel_a_deployed_run_in_its_model_call() -> None:
    async def main() -> None:
        steps = [text("never").after(60)]
        async with deployed(steps, "dep8") as (client, model, _):
            run = await client.submit("Greeter Bot", "hi")
            await model.wait_for_requests(1)
            summary = await client.cancel(run, reason="changed my mind")
            assert summary.status == "cancelled"
            assert summary.error is not None and summary.error.message == "changed my mind"
            assert (await client.cancel(run)).status == "cancelled"

    asyncio.run(main())


def test_a_cancel_that_is_quicker_than_the_harness_still_ends_the_run() -> None:
    async def main() -> None:
        async with deployed([], "dep12") as (client, _, _):
            cancel = client.bus.subjects.cancel("early-1")
            await client.bus.connection.publish(
                cancel, b'{"type":"cancel.requested"}', msg_id="early"
            )
            run = await client.submit("Greeter Bot", "hi", key="early-1")
            assert (await client.wait(run)).status == "cancelled"

    asyncio.run(main())


def test_cancel_works_without_any_harness() -> None:
    async def main() -> None:
        async with deployed([error(429, retry_after=500)], "dep9") as (client, _model, _):
            run = await client.submit("Greeter Bot", "hi")
            async for event in client.follow(run):
                if type(getattr(event, "event", None)).__name__ == "ModelDeferred":
                    break
        settings = Settings.from_env({"SANDSTREAM_PREFIX": "dep9", **_home()})
        async with await Client.connect(settings) as client:
            assert (await client.get(run)).step == "waiting for the rate limit"
            assert (await client.cancel(run)).status == "cancelled"

    asyncio.run(main())


def test_a_redriven_message_lets_its_run_go_on() -> None:
    async def main() -> None:
        async with deployed([tool_call("greet", {"name": "B"}), text("at last")], "dep10") as (
            client,
            _,
            worker,
        ):
            await worker.stop()  # offered, but nobody sane hosts it now

            async def crash(delivery: Delivery) -> None:
                raise RuntimeError("the host is broken")

            async def end(delivery: Delivery, reason: str) -> None:
                await end_parked_run(client.bus, RunId("redrive-1"), reason)

            spec = ConsumerSpec(name="tools-app", filters=["dep10.run.*.call.app"])
            broken = Worker(client.bus, spec, crash, max_deliveries=1, on_parked=end)
            await broken.start()
            run = await client.submit("Greeter Bot", "hi", context={"user": "A"}, key="redrive-1")
            done = await client.wait(run)
            assert done.error is not None and done.error.code == "parked"
            assert "the host is broken" in done.error.message
            await broken.stop()

            repaired = AgentWorker(client.bus, {GREETER.name: GREETER}, pool="app")
            await repaired.start()
            (entry,) = await client.parked()
            await client.redrive(entry.id)
            assert (await client.wait(run)).status == "completed"
            kinds = [type(it.event).__name__ async for it in client.follow(run)]
            assert kinds.count("RunDone") == 2 and kinds[-1] == "RunDone"
            summary = await client.get(run)
            assert (summary.status, summary.output) == ("completed", "at last")
            assert await client.parked() == []
            await repaired.stop()

    asyncio.run(main())


def test_a_worker_that_no_longer_has_the_agent_says_so() -> None:
    async def main() -> None:
        async with deployed([tool_call("greet", {"name": "B"})], "dep11") as (client, _, worker):
            worker._plans.clear()
            worker._everyone.clear()
            done = await client.wait(await client.submit("Greeter Bot", "hi"))
            assert done.error is not None
            assert "does not offer agent 'Greeter Bot'" in done.error.message

    asyncio.run(main())


def test_modules_without_agents_or_with_two_of_a_name(tmp_path: Path) -> None:
    empty = ModuleType("empty")
    empty.__file__ = "empty.py"
    with pytest.raises(UserError, match="defines no agent"):
        agents_of(empty)
    double = ModuleType("double")
    double.__file__ = "double.py"
    vars(double).update(one=Agent(name="same"), two=Agent(name="same"))
    with pytest.raises(UserError, match="two agents are named 'same'"):
        agents_of(double)
    with pytest.raises(UserError, match="there is no file"):
        load_module(str(tmp_path / "missing.py"))
