"""Runner.run, run_sync and run_streamed on a real server against a scripted model over HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from sandstream_bus.wire.messages import CallFinished, RunDone
from support.model_requests import input_of, part_of

from sandstream import (
    Agent,
    Client,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRefusalError,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolTimeoutError,
    UserError,
    function_tool,
)
from sandstream._inspect.run_lists import list_runs
from sandstream.items import MessageOutputItem, ToolCallItem, ToolCallOutputItem
from sandstream.testing import (
    ScriptedModel,
    Step,
    error,
    malformed,
    refusal,
    structured,
    text,
    tool_call,
    tool_calls,
)

pytestmark = pytest.mark.usefixtures("home")


@function_tool
def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"sunny in {city}"


def play(
    steps: list[Step],
    program: Callable[[ScriptedModel], Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """Run a program against a script; unused or unexpected steps fail the test."""

    async def main() -> Any:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            return await program(model)

    return asyncio.run(main())


def test_tool_loop_to_final_output(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="weather", instructions="Be brief.", tools=[weather], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "Paris?")
        assert result.final_output == "It is sunny."
        kinds = [type(item) for item in result.new_items]
        assert kinds == [ToolCallItem, ToolCallOutputItem, MessageOutputItem]
        assert result.last_agent is agent
        assert result.context_wrapper.usage.requests == 2
        assert len(result.raw_responses) == 2
        assert result.last_response_id == result.raw_responses[-1].response_id
        first, second = model.requests
        assert first["instructions"] == "Be brief."
        assert input_of(second)[-1]["output"] == "sunny in Paris"
        assert result.to_input_list()[0] == {"content": "Paris?", "role": "user"}
        assert len(result.to_input_list()) == 4

    play([tool_call("weather", {"city": "Paris"}), text("It is sunny.")], program, monkeypatch)


def test_parallel_tools_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[str] = []

    @function_tool
    async def wait_for(name: str, others: int) -> str:
        while len(finished) < others:
            await asyncio.sleep(0.001)
        finished.append(name)
        return name

    agent = Agent(name="parallel", tools=[wait_for], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go")
        outputs = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
        assert outputs == ["first", "second", "third"]
        assert finished == ["third", "second", "first"]

    calls = tool_calls(
        ("wait_for", {"name": "first", "others": 2}),
        ("wait_for", {"name": "second", "others": 1}),
        ("wait_for", {"name": "third", "others": 0}),
    )
    play([calls, text("done")], program, monkeypatch)


def test_tool_concurrency_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    running = 0
    most = 0

    @function_tool
    async def work(n: int) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return str(n)

    agent = Agent(name="limited", tools=[work], model="gpt-4.1")
    config = RunConfig(tool_execution={"max_function_tool_concurrency": 2})  # type: ignore[arg-type]

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go", run_config=config)
        outputs = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
        assert outputs == ["0", "1", "2", "3", "4"]
        assert most == 2

    calls = tool_calls(*(("work", {"n": n}) for n in range(5)))
    play([calls, text("done")], program, monkeypatch)


class City(BaseModel):
    name: str
    people: int


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Trip(msgspec.Struct):
    to: str
    days: int


@pytest.mark.parametrize(
    ("output_type", "answer", "expected"),
    [
        (City, {"name": "Rome", "people": 3}, City(name="Rome", people=3)),
        (Point, {"response": {"x": 1, "y": 2}}, Point(1, 2)),
        (list[int], {"response": [1, 2]}, [1, 2]),
        (Trip, {"to": "Rome", "days": 3}, Trip("Rome", 3)),
    ],
)
def test_structured_output(
    output_type: Any, answer: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(name="structured", output_type=output_type, model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go")
        assert result.final_output == expected
        assert part_of(model.requests[0], "text")["format"]["strict"] is True

    play([structured(answer)], program, monkeypatch)


def test_output_that_does_not_fit_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="structured", output_type=City, model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(ModelBehaviorError) as caught:
            await Runner.run(agent, "go")
        assert caught.value.run_data is not None
        assert len(caught.value.run_data.new_items) == 1

    play([text("no JSON")], program, monkeypatch)


def test_error_handlers_replace_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="handled", tools=[weather], model="gpt-4.1")
    handlers: Any = {"max_turns": lambda data: f"gave up: {data.error}"}

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go", max_turns=1, error_handlers=handlers)
        assert result.final_output == "gave up: Max turns (1) exceeded"
        assert isinstance(result.new_items[-1], MessageOutputItem)

    play([tool_call("weather", {"city": "Paris"})], program, monkeypatch)


def test_max_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="endless", tools=[weather], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(MaxTurnsExceeded, match=r"Max turns \(2\) exceeded"):
            await Runner.run(agent, "go", max_turns=2)

    calls = [tool_call("weather", {"city": "A"}), tool_call("weather", {"city": "B"})]
    play(calls, program, monkeypatch)


def test_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="refuses", model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(ModelRefusalError) as caught:
            await Runner.run(agent, "go")
        assert caught.value.refusal == "No."

    play([refusal("No.")], program, monkeypatch)


def test_dynamic_instructions_enabled_tools_and_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    def instructions(context: RunContextWrapper[dict[str, str]], agent: Agent[Any]) -> str:
        return f"Serve {context.context['user']}."

    @function_tool(is_enabled=lambda context, agent: False)
    def hidden() -> str:
        return "never"

    def shout(data: Any) -> Any:
        data.model_data.input[0]["content"] = data.model_data.input[0]["content"].upper()
        return data.model_data

    agent = Agent(name="dynamic", instructions=instructions, tools=[hidden, weather], model="m")

    async def program(model: ScriptedModel) -> None:
        config = RunConfig(call_model_input_filter=shout)
        result = await Runner.run(agent, "hi", context={"user": "Ada"}, run_config=config)
        assert result.final_output == "ok"
        (request,) = model.requests
        assert request["instructions"] == "Serve Ada."
        assert [tool["name"] for tool in part_of(request, "tools")] == ["weather"]
        assert request["input"] == [{"content": "HI", "role": "user"}]

    play([text("ok")], program, monkeypatch)


class Basket:
    def __init__(self) -> None:
        self.items: list[str] = []


def test_context_is_the_callers_object(monkeypatch: pytest.MonkeyPatch) -> None:
    @function_tool
    def put(context: RunContextWrapper[Basket], item: str) -> str:
        context.context.items.append(item)
        return "ok"

    basket = Basket()
    agent = Agent(name="shop", tools=[put], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        await Runner.run(agent, "go", context=basket)
        assert basket.items == ["apple"]

    play([tool_call("put", {"item": "apple"}), text("done")], program, monkeypatch)


def test_a_tool_that_raises_tells_the_model_a_text_and_the_log_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @function_tool
    def broken() -> str:
        raise ValueError("secret detail")

    agent = Agent(name="broken", tools=[broken], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go")
        told = input_of(model.requests[1])[-1]["output"]
        assert told == "An error occurred while running the tool. Please try again."
        async with await Client.connect() as client:
            events = [it.event for it in await client.events(result.run_id)]
        (failed,) = [it.error for it in events if isinstance(it, CallFinished)]
        assert failed is not None
        assert (failed.code, failed.message) == ("tool_error", "secret detail")

    play([tool_call("broken", {}), text("sorry")], program, monkeypatch)


def test_a_tool_that_must_not_fail_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    @function_tool(failure_error_function=None)
    def broken() -> str:
        raise ValueError("boom")

    agent = Agent(name="broken", tools=[broken], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(UserError, match="Error running tool broken: boom") as caught:
            await Runner.run(agent, "go")
        assert isinstance(caught.value.__cause__, ValueError)

    play([tool_call("broken", {})], program, monkeypatch)


def test_a_tool_that_hangs_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    @function_tool(timeout=0.05)
    async def hangs() -> str:
        await asyncio.Event().wait()
        return "never"

    @function_tool(timeout=0.05, timeout_behavior="raise_exception")
    async def hangs_fatally() -> str:
        await asyncio.Event().wait()
        return "never"

    agent = Agent(name="hangs", tools=[hangs, hangs_fatally], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(ToolTimeoutError):
            await Runner.run(agent, "go")
        told = input_of(model.requests[1])[-1]["output"]
        assert told == "Tool 'hangs' timed out after 0.05 seconds."

    play([tool_call("hangs", {}), tool_call("hangs_fatally", {})], program, monkeypatch)


def test_a_tool_that_blocks_the_loop_longer_than_the_lease_runs_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import time

    calls: list[float] = []

    @function_tool
    async def blocks() -> str:
        calls.append(time.monotonic())
        time.sleep(6.0)  # noqa: ASYNC251  longer than ack_wait: no beat can be sent
        return "ok"

    agent = Agent(name="blocks", tools=[blocks], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go")
        assert result.final_output == "done"
        assert len(calls) == 1

    play([tool_call("blocks", {}), text("done")], program, monkeypatch)


def test_tools_may_return_bytes_print_or_return_megabytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @function_tool
    def as_bytes() -> bytes:
        print("noise")
        return b"\x00\xff"

    @function_tool
    def megabytes() -> str:
        return "x" * 5_000_000

    agent = Agent(name="odd", tools=[as_bytes, megabytes], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go")
        assert result.final_output == "done"
        outputs = [item["output"] for item in input_of(model.requests[1])[-2:]]
        assert outputs[0] == str(b"\x00\xff")
        assert len(outputs[1]) == 5_000_000

    play([tool_calls(("as_bytes", {}), ("megabytes", {})), text("done")], program, monkeypatch)


def test_model_nonsense_and_unknown_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="nonsense", tools=[weather], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(ModelBehaviorError, match="malformed"):
            await Runner.run(agent, "go")
        with pytest.raises(ModelBehaviorError, match="Tool nope not found in agent nonsense"):
            await Runner.run(agent, "go")
        config = RunConfig(tool_not_found_behavior="return_error_to_model")
        result = await Runner.run(agent, "go", run_config=config)
        assert result.final_output == "sorry"
        assert input_of(model.requests[-1])[-1]["output"] == "Tool 'nope' not found."

    steps = [malformed("{"), tool_call("nope", {}), tool_call("nope", {}), text("sorry")]
    play(steps, program, monkeypatch)


def test_short_rate_limits_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="limited", model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go")
        assert result.final_output == "ok"
        assert len(model.requests) == 3

    steps = [error(429, retry_after=0.01), error(429, retry_after=0.01), text("ok")]
    play(steps, program, monkeypatch)


def test_a_long_rate_limit_waits_in_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="limited", model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "go")
        assert result.final_output == "ok"
        async with await Client.connect() as client:
            kinds = [type(event.event).__name__ for event in await client.events(result.run_id)]
        assert kinds == ["RunStarted", "ModelDeferred", "TurnRequested", "ModelAnswered", "RunDone"]

    play([error(429, retry_after=6), text("ok")], program, monkeypatch)


def test_server_errors_become_the_vendors_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    import openai

    agent = Agent(name="unlucky", model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            await Runner.run(agent, "go")
        assert caught.value.status_code == 400
        with pytest.raises(openai.InternalServerError):
            settings = ModelSettings(retry={"max_retries": 0})  # type: ignore[arg-type]
            await Runner.run(agent, "go", run_config=RunConfig(model_settings=settings))

    play([error(400), error(500)], program, monkeypatch)


def test_run_key_returns_the_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="keyed", model="gpt-4.1")
    config = RunConfig(run_key="job 42/ä")

    async def program(model: ScriptedModel) -> None:
        first = await Runner.run(agent, "go", run_config=config)
        again = await Runner.run(agent, "go", run_config=config)
        assert first.final_output == again.final_output == "once"
        assert first.run_id == again.run_id
        other = Agent(name="other", model="gpt-4.1")
        with pytest.raises(UserError, match="belongs to a run of agent 'keyed'"):
            await Runner.run(other, "go", run_config=config)

    play([text("once")], program, monkeypatch)


def test_stream_events_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="streams", tools=[weather], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = Runner.run_streamed(agent, "go")
        seen = []
        words = ""
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                if event.data.type == "response.output_text.delta":
                    words += event.data.delta
            else:
                seen.append(getattr(event, "name", event.type))
        assert words == result.final_output == "It is sunny."
        assert seen == [
            "agent_updated_stream_event",
            "tool_called",
            "tool_output",
            "message_output_created",
        ]
        assert result.is_complete and result.current_turn == 2

    play([tool_call("weather", {"city": "Paris"}), text("It is sunny.")], program, monkeypatch)


@pytest.mark.parametrize("mode", ["immediate", "after_turn"])
def test_cancel_a_streamed_run(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    @function_tool
    async def slow() -> str:
        if mode == "immediate":
            await asyncio.Event().wait()
        await gate.wait()
        return "finished"

    agent = Agent(name="cancelled", tools=[slow], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = Runner.run_streamed(agent, "go")
        names = []
        async for event in result.stream_events():
            names.append(getattr(event, "name", event.type))
            if names[-1] == "tool_called":
                result.cancel(mode)
                async with await Client.connect() as client:
                    await _wait_for_kind(client, result.run_id, "CancelRequested")
                gate.set()
        assert result.final_output is None
        assert ("tool_output" in names) == (mode == "after_turn")
        async with await Client.connect() as client:
            assert (await client.wait(result.run_id)).status == "cancelled"

    play([tool_call("slow", {})], program, monkeypatch)


async def _wait_for_kind(client: Client, run_id: str, kind: str) -> None:
    async for event in client.follow(run_id):
        if type(getattr(event, "event", None)).__name__ == kind:
            return


def test_cancelling_the_caller_cancels_a_run_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    started = asyncio.Event()

    @function_tool
    async def slow() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(name="abandoned", tools=[slow], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        result = Runner.run_streamed(agent, "go")
        assert result.run_loop_task is not None
        await started.wait()
        result.run_loop_task.cancel()
        async with await Client.connect() as client:
            done = await client.wait(result.run_id)
        assert isinstance(done, RunDone) and done.status == "cancelled"

    play([tool_call("slow", {})], program, monkeypatch)


def test_a_run_ends_with_the_program_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does it: the caller is cancelled, and nothing comes after it but the loop's end."""

    caller: Any = None

    @function_tool
    async def slow() -> str:
        caller.cancel()
        await asyncio.sleep(60)
        return "late"

    agent = Agent(name="interrupted", tools=[slow], model="gpt-4.1")

    async def program(model: ScriptedModel) -> None:
        nonlocal caller
        caller = asyncio.current_task()
        with pytest.raises(asyncio.CancelledError):
            await Runner.run(agent, "go")

    play([tool_call("slow", {})], program, monkeypatch)

    async def look() -> None:
        async with await Client.connect() as client:
            found = [it for it in await list_runs(client.bus, limit=5) if it.agent == "interrupted"]
        assert [it.status for it in found] == ["cancelled"]

    asyncio.run(look())


def test_run_sync_and_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="sync", model="gpt-4.1")
    with ScriptedModel([text("one"), text("two")]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        assert Runner.run_sync(agent, "go").final_output == "one"
        assert Runner.run_sync(agent, "go").final_output == "two"

    async def inside() -> None:
        with pytest.raises(RuntimeError, match="event loop is already running"):
            Runner.run_sync(agent, "go")

    loop = asyncio.get_event_loop_policy().get_event_loop()
    loop.run_until_complete(inside())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_many_concurrent_runs_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandstream.testing import script_for

    agent = Agent(name="many", tools=[weather], model="gpt-4.1")
    conversations = [
        script_for(f"city-{n}.", [tool_call("weather", {"city": f"c{n}"}), text(f"answer {n}")])
        for n in range(50)
    ]

    async def main() -> None:
        async with ScriptedModel(conversations=conversations) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            results = await asyncio.gather(
                *(Runner.run(agent, f"What about city-{n}.") for n in range(50))
            )
        assert [result.final_output for result in results] == [f"answer {n}" for n in range(50)]
        assert [result.new_items[1].output for result in results] == [  # type: ignore[union-attr]
            f"sunny in c{n}" for n in range(50)
        ]

    asyncio.run(main())
