"""The scripted model against the real OpenAI client: both APIs, streams, faults, scripts."""

import asyncio
import json
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseCustomToolCall, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

import sandstream.testing
from sandstream.testing import (
    Script,
    ScriptedModel,
    ScriptError,
    Step,
    Usage,
    answer,
    custom_tool_call,
    drop_connection,
    error,
    incomplete,
    malformed,
    read_journal,
    reasoning,
    refusal,
    script_for,
    status_failed,
    structured,
    text,
    tool_call,
    tool_calls,
)

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CERTIFICATES = ssl.create_default_context()
"""Made once: it takes longer than most tests."""
USER = {"role": "user", "content": "hi"}
TEXT_EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def play(
    model: ScriptedModel, body: Callable[[AsyncOpenAI], Awaitable[None]], *, max_retries: int = 0
) -> None:
    """Run `body` with a client of the model, on a loop of its own."""

    async def run() -> None:
        async with model:
            http_client = DefaultAsyncHttpxClient(verify=CERTIFICATES)
            client = AsyncOpenAI(
                base_url=model.base_url,
                api_key="k",
                max_retries=max_retries,
                http_client=http_client,
            )
            async with client:
                await body(client)

    asyncio.run(run())


async def ask(client: AsyncOpenAI, asked: Any = "hi", **options: Any) -> Any:
    return await client.responses.create(model="gpt-test", input=asked, **options)


async def chat(client: AsyncOpenAI, *messages: dict[str, Any], **options: Any) -> Any:
    given: Any = list(messages) or [USER]
    return await client.chat.completions.create(model="gpt-test", messages=given, **options)


def post(url: str, body: bytes | dict[str, Any]) -> tuple[int, dict[str, str], str]:
    """Status, headers and body as they are on the wire."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, dict(reply.headers), reply.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, dict(refused.headers), refused.read().decode()


def function_call(call_id: str, name: str = "get_weather") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def custom_call(call_id: str) -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "patch", "input": "a"}


def output(call_id: str, said: str = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def test_responses_body_validates_as_the_clients_types() -> None:
    everything = answer(
        reasoning("I think."),
        "Let me see.",
        tool_call("get_weather", {"city": "Paris"}, call_id="call_1"),
        usage=Usage(input_tokens=10, output_tokens=5, cached_tokens=3, reasoning_tokens=2),
    )
    with ScriptedModel([everything]) as model:
        body = {"model": "gpt-test", "input": "hi", "tools": [WEATHER], "instructions": "Be kind."}
        status, headers, got = post(f"{model.base_url}/responses", body)
    response = Response.model_validate_json(got)
    assert status == 200
    assert headers["x-request-id"].startswith("req_")
    assert response.id.startswith("resp_")
    assert (response.model, response.status) == ("gpt-test", "completed")
    assert response.instructions == "Be kind."
    assert [tool.to_dict() for tool in response.tools] == [WEATHER]
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert [str(item.id)[:3] for item in response.output] == ["rs_", "msg", "fc_"]
    assert response.output_text == "Let me see."
    call = json.loads(got)["output"][2]
    assert (call["call_id"], call["arguments"]) == ("call_1", '{"city":"Paris"}')
    assert response.usage is not None
    assert response.usage.total_tokens == 15
    assert response.usage.input_tokens_details.cached_tokens == 3
    assert response.usage.output_tokens_details.reasoning_tokens == 2


def test_responses_stream_is_the_real_sequence_of_events() -> None:
    with ScriptedModel([text("Hello world")]) as model:
        body = {"model": "gpt-test", "input": "hi", "stream": True, "tools": [WEATHER]}
        _, headers, got = post(f"{model.base_url}/responses", body)
    assert headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in got.strip().split("\n\n")]
    adapter: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
    events = [adapter.validate_json(data.removeprefix("data: ")) for _, data in blocks]
    assert [event.type for event in events] == TEXT_EVENTS
    assert [name.removeprefix("event: ") for name, _ in blocks] == TEXT_EVENTS
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("step", "kinds"),
    [
        (
            tool_call("get_weather", {"city": "Paris"}).chunks(3),
            "output_item.added function_call_arguments.delta function_call_arguments.delta "
            "function_call_arguments.delta function_call_arguments.done output_item.done",
        ),
        (
            custom_tool_call("patch", "Add a line").chunks(2),
            "output_item.added custom_tool_call_input.delta custom_tool_call_input.delta "
            "custom_tool_call_input.done output_item.done",
        ),
        (
            refusal("I will not").chunks(1),
            "output_item.added content_part.added refusal.delta refusal.done "
            "content_part.done output_item.done",
        ),
        (
            answer(reasoning("Well"), text("Hi")).chunks(1),
            "output_item.added reasoning_summary_part.added reasoning_summary_text.delta "
            "reasoning_summary_text.done reasoning_summary_part.done output_item.done "
            "output_item.added content_part.added output_text.delta output_text.done "
            "content_part.done output_item.done",
        ),
    ],
)
def test_responses_streams_of_other_items(step: Step, kinds: str) -> None:
    async def body(client: AsyncOpenAI) -> None:
        events = [event async for event in await ask(client, stream=True)]
        expected = ["created", "in_progress", *kinds.split(), "completed"]
        assert [event.type for event in events] == [f"response.{kind}" for kind in expected]

    play(ScriptedModel([step]), body)


def test_a_custom_tool_is_offered_called_and_answered() -> None:
    patch: dict[str, Any] = {
        "type": "custom",
        "name": "patch",
        "description": "Changes files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
    }

    async def body(client: AsyncOpenAI) -> None:
        first = await ask(client, tools=[patch])
        stream = await ask(client, tools=[patch], stream=True)
        streamed = [event async for event in stream]
        for call in (first.output[0], streamed[-1].response.output[0], streamed[-2].item):
            assert isinstance(call, ResponseCustomToolCall)
            assert call.id and call.id.startswith("ctc_")
            assert (call.call_id, call.name, call.input) == ("call_9", "patch", "one two\n")
            assert call.model_dump()["status"] == "completed"
        deltas = [event.delta for event in streamed if event.type.endswith("input.delta")]
        assert deltas == ["one", " two", "\n"]
        done = next(event for event in streamed if event.type.endswith("input.done"))
        assert done.input == "one two\n" and done.item_id == streamed[2].item.id
        assert streamed[2].item.input == ""
        assert first.tools[0].name == "patch"
        outcome = {"type": "custom_tool_call_output", "call_id": "call_9", "output": "ok"}
        answered = [USER, first.output[0].model_dump(exclude_unset=True), outcome]
        assert (await ask(client, answered, tools=[patch])).output_text == "Done."

    call = custom_tool_call("patch", "one two\n", call_id="call_9").times(2)
    # the text of a call is seen by conditions, like a function's arguments
    play(ScriptedModel([call, text("Done.").when("one two")]), body)


def test_a_custom_tool_call_is_no_answer_of_chat_completions() -> None:
    async def body(client: AsyncOpenAI) -> None:
        with pytest.raises(openai.InternalServerError, match="Responses API only"):
            await chat(client)

    with pytest.raises(ScriptError, match="calls a custom tool"):
        play(ScriptedModel([custom_tool_call("patch", "a")]), body)


def test_the_clients_stream_helper_rebuilds_what_was_sent() -> None:
    async def body(client: AsyncOpenAI) -> None:
        async with client.responses.stream(model="gpt-test", input="hi") as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_response()
        assert final.output_text == "one  two\nthree "
        messages: Any = [USER]
        async with client.chat.completions.stream(model="m", messages=messages) as chats:
            async for _ in chats:
                pass
            completion = await chats.get_final_completion()
        message = completion.choices[0].message
        assert message.content == "well"
        assert [call.function.arguments for call in message.tool_calls or []] == ['{"x":1}', "{}"]
        assert completion.choices[0].finish_reason == "tool_calls"

    calls = answer("well", tool_call("f", {"x": 1}), tool_call("g")).chunks(4)
    play(ScriptedModel([text("one  two\nthree "), calls]), body)


def test_chat_completion_and_its_stream_validate() -> None:
    step = answer("Hello", tool_call("f", {"x": 1}), usage=Usage(input_tokens=7, output_tokens=2))
    body: dict[str, Any] = {"model": "gpt-test", "messages": [USER]}
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    with ScriptedModel([step.times(2), step]) as model:
        url = f"{model.base_url}/chat/completions"
        completion = ChatCompletion.model_validate_json(post(url, body)[2])
        blocks = post(url, streamed)[2].strip().split("\n\n")
        without_usage = post(url, {**body, "stream": True})[2]
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.choices[0].message.content == "Hello"
    assert completion.usage is not None and completion.usage.total_tokens == 9
    assert blocks[-1] == "data: [DONE]"
    chunks = [ChatCompletionChunk.model_validate_json(block[6:]) for block in blocks[:-1]]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None and chunks[-1].usage.prompt_tokens == 7
    assert "usage" not in without_usage


def test_structured_output_parses_and_refusal_is_seen_in_both_apis() -> None:
    class Weather(BaseModel):
        city: str
        degrees: int

    async def body(client: AsyncOpenAI) -> None:
        parsed = await client.responses.parse(model="m", input="hi", text_format=Weather)
        assert parsed.output_parsed == Weather(city="Oslo", degrees=3)
        messages: Any = [USER]
        completion = await client.chat.completions.parse(
            model="m", messages=messages, response_format=Weather
        )
        assert completion.choices[0].message.parsed == Weather(city="Rome", degrees=30)
        assert (await ask(client)).output[0].content[0].refusal == "no"
        assert (await chat(client)).choices[0].message.refusal == "no"

    first = structured({"city": "Oslo", "degrees": 3})
    second = structured(Weather(city="Rome", degrees=30))
    play(ScriptedModel([first, second, refusal("no").times(2)]), body)


def test_http_errors_carry_status_code_and_retry_after() -> None:
    async def body(client: AsyncOpenAI) -> None:
        with pytest.raises(openai.RateLimitError) as limited:
            await ask(client)
        assert limited.value.code == "rate_limit_exceeded"
        assert limited.value.response.headers["retry-after"] == "1.5"
        assert limited.value.request_id
        with pytest.raises(openai.InternalServerError):
            await chat(client)

    limit = error(429, retry_after=1.5, code="rate_limit_exceeded", message="slow down")
    play(ScriptedModel([limit, error(500)]), body)


def test_the_clients_own_retries_reach_the_next_step() -> None:
    async def body(client: AsyncOpenAI) -> None:
        assert (await ask(client)).output_text == "at last"

    model = ScriptedModel([error(429, retry_after=0.01), drop_connection(), text("at last")])
    play(model, body, max_retries=2)
    assert [request.status for request in model.journal] == [429, 200, 200]
    assert [request.answered for request in model.journal] == [True, False, True]


def test_dropped_connections_before_and_in_the_middle() -> None:
    async def body(client: AsyncOpenAI) -> None:
        for _ in range(2):
            with pytest.raises(openai.APIConnectionError):
                await ask(client)
        seen = []
        with pytest.raises(openai.APIConnectionError):
            async for event in await ask(client, stream=True):
                seen.append(event.type)
        assert seen[:2] == ["response.created", "response.in_progress"]
        assert "response.completed" not in seen

    cut = drop_connection(after_bytes=3000, of=text("word " * 500))
    play(ScriptedModel([drop_connection(), drop_connection(after_bytes=50), cut]), body)


def test_malformed_answers_break_the_client_not_the_server() -> None:
    async def body(client: AsyncOpenAI) -> None:
        with pytest.raises(json.JSONDecodeError):
            await ask(client)
        with pytest.raises(json.JSONDecodeError):
            async for _ in await ask(client, stream=True):
                pass
        assert (await ask(client)).output_text == "fine"

    play(ScriptedModel([malformed('{"id": '), malformed("nonsense"), text("fine")]), body)


def test_failed_and_incomplete_answers() -> None:
    async def body(client: AsyncOpenAI) -> None:
        failed = await ask(client)
        assert (failed.status, failed.error.code) == ("failed", "server_error")
        events = [event async for event in await ask(client, stream=True)]
        assert events[-1].type == "response.failed"
        with pytest.raises(openai.InternalServerError):
            await chat(client)
        cut = await ask(client)
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert cut.output[0].status == "incomplete"
        events = [event async for event in await ask(client, stream=True)]
        assert events[-1].type == "response.incomplete"
        assert (await chat(client)).choices[0].finish_reason == "length"

    play(ScriptedModel([status_failed("boom").times(3), incomplete("half a").times(3)]), body)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("responses", b"{nope", "could not parse the JSON body"),
        ("responses", {"input": "hi"}, "Missing required parameter: 'model'"),
        ("responses", {"model": "m"}, "Missing required parameter: 'input'"),
        (
            "responses",
            {"model": "m", "input": [USER, output("call_x")]},
            "No tool call found for function call output with call_id call_x.",
        ),
        (
            "responses",
            {"model": "m", "input": [USER, function_call("call_x")]},
            "No tool output found for function call call_x.",
        ),
        (
            "responses",
            {"model": "m", "input": [USER, custom_call("call_x"), output("call_x")]},
            "No tool call found for function call output with call_id call_x.",
        ),
        (
            "responses",
            {"model": "m", "input": [USER, custom_call("call_x")]},
            "No tool output found for custom tool call call_x.",
        ),
        (
            "responses",
            {"model": "m", "input": [{**USER, "id": "msg_1"}, {**USER, "id": "msg_1"}]},
            "Duplicate item found with id msg_1",
        ),
        (
            "responses",
            {"model": "m", "input": [USER, {"type": "reasoning", "id": "rs_1", "summary": []}]},
            "'rs_1' of type 'reasoning' was provided without its required following item",
        ),
        ("chat/completions", {"model": "m"}, "Missing required parameter: 'messages'"),
        (
            "chat/completions",
            {"model": "m", "messages": [{"role": "tool", "tool_call_id": "c", "content": ""}]},
            "messages with role 'tool' must be a response",
        ),
        (
            "chat/completions",
            {
                "model": "m",
                "messages": [USER, {"role": "assistant", "tool_calls": [{"id": "call_y"}]}, USER],
            },
            "did not have response messages: call_y",
        ),
    ],
)
def test_invalid_requests_are_refused_like_the_real_api(
    path: str, body: bytes | dict[str, Any], message: str
) -> None:
    with ScriptedModel([text("never").forever()]) as model:
        status, _, got = post(f"{model.base_url}/{path}", body)
        assert model.journal[0].status == 400
    assert status == 400
    refused = json.loads(got)["error"]
    assert message in refused["message"]
    assert refused["type"] == "invalid_request_error"


def test_a_conversation_kept_by_the_api_continues_its_script() -> None:
    async def body(client: AsyncOpenAI) -> None:
        first = await ask(client, "plan a trip")
        call_id = first.output[0].call_id
        second = await ask(client, [output(call_id)], previous_response_id=first.id)
        assert second.output_text == "planned"
        assert second.previous_response_id == first.id

    play(ScriptedModel(conversations=[script_for("trip", [tool_call("f"), text("planned")])]), body)


def test_when_chooses_by_text_or_predicate() -> None:
    async def body(client: AsyncOpenAI) -> None:
        assert (await ask(client, "it rains")).output_text == "umbrella"
        assert (await ask(client, "hm", temperature=0.5)).output_text == "cool"
        assert (await ask(client, "it shines")).output_text == "else"

    steps = [
        text("umbrella").when("rains"),
        text("cool").when(lambda request: request.body.get("temperature") == 0.5),
        text("else").forever(),
    ]
    play(ScriptedModel(steps), body)


def test_concurrent_conversations_share_a_server_and_repeat_themselves() -> None:
    runs = 20
    scripts = [
        script_for(
            f"run-{number}",
            [
                tool_calls(("get_weather", {"city": str(number)}), ("get_weather", {})),
                error(500),
                tool_call("get_weather", {"city": "again"}),
                text(f"answer {number}"),
            ],
        )
        for number in range(runs)
    ]

    async def one(client: AsyncOpenAI, number: int) -> None:
        items: list[Any] = [{"role": "user", "content": f"This is run-{number}"}]
        for turn in range(3):
            answers = [await ask(client, items) for _ in range(2)]
            shown = [[item.to_dict() for item in got.output] for got in answers]
            for item in [*shown[0], *shown[1]]:
                del item["id"]
            assert shown[0] == shown[1]
            calls = [item for item in shown[0] if item["type"] == "function_call"]
            if turn == 2:
                assert answers[0].output_text == f"answer {number}"
            # One answer's calls may be followed by their outputs one by one.
            for call in calls:
                items += [call, output(str(call["call_id"]))]

    async def body(client: AsyncOpenAI) -> None:
        await asyncio.gather(*(one(client, number) for number in range(runs)))

    model = ScriptedModel(conversations=scripts)
    play(model, body, max_retries=2)
    assert len(model.journal) == runs * 7
    assert sum(request.status == 500 for request in model.journal) == runs
    assert {request.conversation for request in model.journal if "run-1" in request.text} >= {
        "run-1",
        "run-10",
    }


def test_chat_conversations_count_assistant_messages() -> None:
    async def body(client: AsyncOpenAI) -> None:
        first = (await chat(client)).choices[0].message
        told = first.to_dict()
        tool = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
        again = (await chat(client)).choices[0].message
        assert again.tool_calls[0].id == first.tool_calls[0].id
        last = await chat(client, USER, told, tool)
        assert last.choices[0].message.content == "It is sunny."

    play(ScriptedModel(default=[tool_call("get_weather"), text("It is sunny.")]), body)


def test_unexpected_requests_and_unused_steps_fail_the_test() -> None:
    async def too_many(client: AsyncOpenAI) -> None:
        await ask(client)
        with pytest.raises(openai.InternalServerError, match="no step for this request"):
            await ask(client, "one more")

    with pytest.raises(ScriptError, match=r"unexpected request 1.*one more"):
        play(ScriptedModel([text("only one")]), too_many)
    play(ScriptedModel([text("only one")], strict=False), too_many)

    async def too_few(client: AsyncOpenAI) -> None:
        await ask(client)

    with pytest.raises(ScriptError, match=r"unused step: steps\[0\] 1 more"):
        play(ScriptedModel([text("twice").times(2)]), too_few)
    with pytest.raises(ScriptError, match=r"conversation 'never' steps\[0\]"):
        play(ScriptedModel([text("a")], conversations=[script_for("never", [text("b")])]), too_few)

    async def broken(client: AsyncOpenAI) -> None:
        raise LookupError("the test's own error is not hidden")

    with pytest.raises(LookupError):
        play(ScriptedModel([text("unused")]), broken)


def test_latency_and_pauses_between_deltas() -> None:
    async def body(client: AsyncOpenAI) -> None:
        begun = time.monotonic()
        stream = await ask(client, stream=True)
        assert time.monotonic() - begun >= 0.05
        seen = []
        async for event in stream:
            if event.type == "response.output_text.delta":
                seen.append((event.delta, time.monotonic()))
        assert "".join(delta for delta, _ in seen) == "abcdef"
        assert [len(delta) for delta, _ in seen] == [2, 2, 2]
        assert seen[-1][1] - seen[0][1] >= 0.03

    play(ScriptedModel([text("abcdef").after(0.05).chunks(3, delta_delay_s=0.02)]), body)


def test_waiting_for_requests_and_a_client_that_goes_away() -> None:
    async def run() -> None:
        async with ScriptedModel([text("slow").after(30)]) as model:
            client = AsyncOpenAI(base_url=model.base_url, api_key="k", max_retries=0)
            async with client:
                asking = asyncio.create_task(ask(client, "wait for me"))
                [request] = await model.wait_for_requests(1)
                assert request.text == "wait for me"
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
            with pytest.raises(TimeoutError, match="1 of 2 model requests"):
                await model.wait_for_requests(2, timeout_s=0.01)
            assert not request.answered

    asyncio.run(run())


def test_on_a_thread_for_sync_code() -> None:
    with (
        ScriptedModel([text("Hello")], models=["gpt-test"]) as model,
        OpenAI(base_url=model.base_url, api_key="k") as client,
    ):
        assert [one.id for one in client.models.list()] == ["gpt-test"]
        assert client.responses.create(model="gpt-test", input="hi").output_text == "Hello"
        [request] = asyncio.run(model.wait_for_requests(1))
        assert (request.api, request.path) == ("responses", "/v1/responses")
        assert request.headers["authorization"] == "Bearer k"
        assert model.requests[0]["input"] == "hi"


def test_a_script_survives_json_but_a_predicate_does_not() -> None:
    script = Script(
        steps=(tool_call("f", {"x": [1]}).when("x").times(2), drop_connection(10), error(429)),
        conversations=(script_for("a", [incomplete("b").after(1), malformed().forever()]),),
        default=script_for("", [answer(reasoning("r"), refusal("no"), usage=Usage())]),
    )
    assert Script.from_json(script.to_json()) == script
    with pytest.raises(ScriptError, match="predicate cannot be written as JSON"):
        Script(steps=(text("a").when(lambda _: True).named("mine"),)).to_json()


@contextmanager
def server_process(folder: Path, script: Script, *options: str) -> Iterator[tuple[Any, str]]:
    (folder / "script.json").write_bytes(script.to_json())
    command = [sys.executable, "-m", "sandstream.testing.server", "--port", "0"]
    command += ["--script", str(folder / "script.json"), "--journal", str(folder / "journal.jsonl")]
    command += ["--ready-file", str(folder / "ready"), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_as_a_process_whose_journal_survives_kill_9(tmp_path: Path) -> None:
    script = Script(conversations=(script_for("hi", [tool_call("f", {"x": 1}), text("bye")]),))
    with server_process(tmp_path, script) as (process, base_url):
        assert (tmp_path / "ready").read_text() == base_url
        with OpenAI(base_url=base_url, api_key="secret", max_retries=0) as client:
            first = client.responses.create(model="m", input="hi").output[0]
        assert len(read_journal(tmp_path / "journal.jsonl")) == 1
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with (
        server_process(tmp_path, script) as (_, base_url),
        OpenAI(base_url=base_url, api_key="secret", max_retries=0) as client,
    ):
        again = client.responses.create(model="m", input="hi").output[0]
    assert again.to_dict() | {"id": ""} == first.to_dict() | {"id": ""}
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"number": 9, "api"')
    journal = read_journal(tmp_path / "journal.jsonl")
    assert [request.body["input"] for request in journal] == ["hi", "hi"]
    assert [(one.conversation, one.position, one.step) for one in journal] == [("hi", 0, "0")] * 2
    assert "secret" not in (tmp_path / "journal.jsonl").read_text()


def test_a_strict_process_tells_what_was_not_used(tmp_path: Path) -> None:
    script = Script(steps=(text("never asked"),))
    with server_process(tmp_path, script, "--strict") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, complaint = process.communicate(timeout=10)
        assert process.returncode == 1
    assert "unused step" in complaint and "never asked" in complaint


def test_the_readme_example_runs() -> None:
    readme = Path(sandstream.testing.__file__).with_name("README.md").read_text()
    [example] = [block.split("```")[0] for block in readme.split("```python\n")[1:]]
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    namespace["test_weather"]()
