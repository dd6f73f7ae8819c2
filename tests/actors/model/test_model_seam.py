"""The model seam against a recording endpoint: bodies, answers, streams, retries, routes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from actors.model.recording_server import Recorded, RecordingServer, Reply, json_reply, sse_reply
from sandstream_actors.model import (
    ModelAnswer,
    ModelCallError,
    ModelClient,
    ModelRequest,
    OutputSchema,
    RetryPolicy,
    Route,
    pool,
    resolve,
    routes_from_env,
)
from sandstream_actors.model.failures import retry_after_s
from sandstream_actors.model.pool import ClientPool
from sandstream_actors.model.responses_request import own_items, tool_choice
from sandstream_actors.model.sse import SseParser

ITEM = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
}
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 10,
}
RESPONSE = {"id": "resp_1", "model": "m", "status": "completed", "output": [ITEM], "usage": USAGE}
CREATED = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}}
DELTA = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "h"}
COMPLETED = {"type": "response.completed", "sequence_number": 2, "response": RESPONSE}
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


HI = [raw({"role": "user", "content": "hi"})]


class Asked:
    """What came of one call: the answer or the error, and what both sides saw."""

    def __init__(self) -> None:
        self.answer: ModelAnswer | None = None
        self.error: ModelCallError | None = None
        self.events: list[bytes] = []
        self.requests: list[Recorded] = []
        self.slept: list[float] = []

    @property
    def body(self) -> Any:
        return self.requests[0].json

    @property
    def ok(self) -> ModelAnswer:
        assert self.error is None, self.error
        assert self.answer is not None
        return self.answer

    @property
    def failed(self) -> ModelCallError:
        assert self.error is not None
        return self.error


def ask(*replies: Reply, policy: RetryPolicy | None = None, **request: Any) -> Asked:
    async def go() -> Asked:
        asked = Asked()

        async def sleep(delay_s: float) -> None:
            asked.slept.append(delay_s)

        async with RecordingServer(replies) as server:
            route = Route(prefix="openai", base_url=server.url)
            client = ModelClient([route], environ={}, sleep=sleep, retry=policy)
            wanted = ModelRequest(**{"model": "gpt-4o", "input": HI, **request})
            try:
                asked.answer = await client.call(wanted, asked.events.append)
            except ModelCallError as error:
                asked.error = error
            finally:
                await client.aclose()
            asked.requests = server.requests
        return asked

    return asyncio.run(go())


def with_server(
    replies: list[Reply] | Callable[[Recorded], Reply],
    scene: Callable[[RecordingServer], Awaitable[None]],
) -> None:
    async def go() -> None:
        async with RecordingServer(replies) as server:
            await scene(server)

    asyncio.run(go())


# --- the request -----------------------------------------------------------------------------


def test_importing_the_seam_does_not_import_the_sdk() -> None:
    code = (
        "import sys, sandstream_actors.model\n"
        "sys.exit(any(n in sys.modules for n in ('openai', 'pydantic', 'httpx', 'httpx2')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_plainest_body_is_the_reference_s() -> None:
    asked = ask(json_reply(RESPONSE), instructions="be nice")
    assert asked.requests[0].path == "/v1/responses"
    assert asked.body == {
        "model": "gpt-4o",
        "include": [],
        "input": [{"role": "user", "content": "hi"}],
        "instructions": "be nice",
        "tools": [],
    }


def test_every_setting_lands_where_the_reference_puts_it() -> None:
    settings = {
        "temperature": 0.0,
        "top_p": 0.5,
        "frequency_penalty": 0.1,
        "truncation": "auto",
        "max_tokens": 5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "verbosity": "low",
        "metadata": {"a": "b"},
        "store": False,
        "prompt_cache_retention": "24h",
        "response_include": ["reasoning.encrypted_content"],
        "top_logprobs": 3,
        "extra_query": {"q": "1"},
        "extra_body": {"store": True, "zz": 1},
        "extra_headers": {"X-A": "b"},
        "extra_args": {"service_tier": "flex"},
        "context_management": [{"type": "compaction"}],
        "timeout": 30,
    }
    schema = OutputSchema(schema=raw({"type": "object"}))
    asked = ask(json_reply(RESPONSE), settings=settings, output_schema=schema)
    text = {"type": "json_schema", "name": "final_output", "schema": {"type": "object"}}
    assert asked.body == {
        "model": "gpt-4o",
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "input": [{"role": "user", "content": "hi"}],
        "tools": [],
        "temperature": 0.0,
        "top_p": 0.5,
        "truncation": "auto",
        "max_output_tokens": 5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {**text, "strict": True}, "verbosity": "low"},
        "metadata": {"a": "b"},
        "store": True,
        "zz": 1,
        "prompt_cache_retention": "24h",
        "top_logprobs": 3,
        "service_tier": "flex",
        "context_management": [{"type": "compaction"}],
    }
    assert asked.requests[0].path == "/v1/responses?q=1"
    assert asked.requests[0].headers["x-a"] == "b"
    assert asked.requests[0].headers["user-agent"].startswith("Sandstream/Python")


@pytest.mark.parametrize(
    ("choice", "tools", "expected"),
    [
        ("auto", [], "auto"),
        ("get_weather", [TOOL], {"type": "function", "name": "get_weather"}),
        ("web_search", [{"type": "web_search"}], {"type": "web_search"}),
        ("mcp", [], {"type": "mcp"}),
        ("computer_use_preview", [{"type": "computer"}], {"type": "computer"}),
        ("computer", [], {"type": "function", "name": "computer"}),
        ("shell", [{"type": "shell"}], {"type": "shell"}),
        ("shell", [], {"type": "function", "name": "shell"}),
        ("patch", [{"type": "custom", "name": "patch"}], {"type": "custom", "name": "patch"}),
        (
            {"server_label": "s", "name": "n"},
            [],
            {"server_label": "s", "type": "mcp", "name": "n"},
        ),
    ],
)
def test_tool_choice_forms(choice: Any, tools: list[Any], expected: Any) -> None:
    assert tool_choice(choice, [raw(tool) for tool in tools]) == expected


def test_parallel_tool_calls_needs_tools() -> None:
    settings = {"parallel_tool_calls": True}
    assert "parallel_tool_calls" not in ask(json_reply(RESPONSE), settings=settings).body
    asked = ask(json_reply(RESPONSE), settings=settings, tools=[raw(TOOL)])
    assert asked.body["parallel_tool_calls"] is True


def test_a_stored_prompt_keeps_its_own_tools_and_model() -> None:
    settings = {"tool_choice": "get_weather"}
    asked = ask(json_reply(RESPONSE), model="", prompt=raw({"id": "p"}), settings=settings)
    assert asked.body["prompt"] == {"id": "p"}
    assert not {"model", "tools", "tool_choice"} & set(asked.body)


def test_server_state_is_sent() -> None:
    assert ask(json_reply(RESPONSE), previous_response_id="r").body["previous_response_id"] == "r"
    assert ask(json_reply(RESPONSE), conversation_id="c").body["conversation"] == "c"


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1, "extra_args": {"temperature": 2}},
        {"extra_args": {"include": []}},
        {"extra_args": {"extra_body": {}}},
    ],
)
def test_extra_args_must_not_repeat_an_argument(settings: dict[str, Any]) -> None:
    asked = ask(settings=settings)
    assert asked.failed.kind == "misconfigured"
    assert "multiple values for keyword argument" in str(asked.failed)
    assert asked.requests == []


def test_what_other_providers_left_in_items_is_taken_out() -> None:
    foreign = {"type": "reasoning", "id": "r", "summary": [], "provider_data": {"model": "x"}}
    placeholder = {"type": "function_call", "id": "__fake_id__", "name": "n", "call_id": "c"}
    quoting = {"type": "message", "role": "user", "content": "about provider_data"}
    kept = own_items([raw(foreign), raw({**placeholder, "provider_data": {}}), raw(quoting)])
    assert json.loads(msgspec.json.encode(kept)) == [
        {"type": "function_call", "name": "n", "call_id": "c"},
        quoting,
    ]


def test_a_request_survives_the_bus() -> None:
    request = ModelRequest(
        model="m",
        input=HI,
        tools=[raw(TOOL)],
        prompt=raw({"id": "p"}),
        output_schema=OutputSchema(schema=raw({"type": "object"})),
    )
    decoded = msgspec.json.decode(msgspec.json.encode(request), type=ModelRequest)
    assert bytes(decoded.prompt) == b'{"id":"p"}'
    assert msgspec.json.encode(decoded) == msgspec.json.encode(request)


# --- the answer ------------------------------------------------------------------------------


def test_the_answer() -> None:
    settings = {"preserve_raw_usage": True}
    answer = ask(json_reply(RESPONSE, x_request_id="req_1"), settings=settings).ok
    assert [json.loads(bytes(item)) for item in answer.output] == [ITEM]
    assert (answer.response_id, answer.request_id, answer.model) == ("resp_1", "req_1", "m")
    usage = answer.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 7, 3)
    assert (usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (2, 1, 1)
    assert json.loads(bytes(answer.raw_usage)) == USAGE
    assert msgspec.json.decode(msgspec.json.encode(answer), type=ModelAnswer).usage == usage


def test_an_answer_without_usage_still_counts_as_a_request() -> None:
    assert ask(json_reply({**RESPONSE, "usage": None})).ok.usage.requests == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (
            {"status": "failed", "error": {"code": "server_error", "message": "boom"}},
            "server_error",
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "max"}}, "max"),
    ],
)
def test_an_unfinished_response_is_behavior(fields: dict[str, Any], code: str) -> None:
    asked = ask(json_reply({**RESPONSE, **fields}))
    assert (asked.failed.kind, asked.failed.code) == ("behavior", code)
    streamed = {"type": f"response.{fields['status']}", "response": {**RESPONSE, **fields}}
    asked = ask(sse_reply([CREATED, streamed]), stream=True)
    assert (asked.failed.kind, asked.failed.code) == ("behavior", code)
    assert asked.failed.events_seen == 2


@pytest.mark.parametrize(
    "content",
    [
        b"secret not json",
        b'{"id":"secret"}',
        b'{"output":"secret"}',
        b'{"output":["secret"]}',
        b'{"output":[],"usage":"secret"}',
        b"[]",
        b"",
    ],
)
def test_malformed_answers_are_named_without_the_payload(content: bytes) -> None:
    asked = ask(Reply(body=content))
    assert asked.failed.kind == "behavior"
    assert "secret" not in str(asked.failed)
    assert len(asked.requests) == 1


# --- streams ---------------------------------------------------------------------------------


def test_stream_events_are_passed_on_as_they_came() -> None:
    asked = ask(sse_reply([CREATED, DELTA, COMPLETED], x_request_id="req_1"), stream=True)
    assert [json.loads(event) for event in asked.events] == [CREATED, DELTA, COMPLETED]
    assert asked.ok.response_id == "resp_1"
    assert asked.ok.request_id == "req_1"
    assert asked.body["stream"] is True


def test_items_of_a_stream_whose_completed_response_is_empty() -> None:
    done = {"type": "response.output_item.done", "item": ITEM}
    empty = {"type": "response.completed", "response": {**RESPONSE, "output": []}}
    answer = ask(sse_reply([CREATED, done, empty]), stream=True).ok
    assert [json.loads(bytes(item)) for item in answer.output] == [ITEM]


def test_a_stream_that_breaks_before_anything_was_shown_is_tried_again() -> None:
    good = sse_reply([CREATED, DELTA, COMPLETED])
    asked = ask(sse_reply([CREATED], cut=True), sse_reply([CREATED]), good, stream=True)
    assert asked.ok.usage.requests == 3
    assert len(asked.slept) == 2


@pytest.mark.parametrize("cut", [True, False])
def test_a_stream_that_breaks_later_is_not(cut: bool) -> None:
    asked = ask(sse_reply([CREATED, DELTA], cut=cut), stream=True)
    assert (asked.failed.kind, asked.failed.retryable) == ("unavailable", False)
    assert (asked.failed.events_seen, asked.failed.requests) == (2, 1)
    assert len(asked.requests) == 1


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "rate_limited"),
        ({"error": {"code": "rate_limit_exceeded", "message": "slow"}}, "rate_limited"),
        ({"type": "error", "code": "bad", "message": "slow"}, "behavior"),
    ],
)
def test_an_error_event(event: dict[str, Any], kind: str) -> None:
    asked = ask(sse_reply([CREATED, event]), stream=True)
    assert asked.failed.kind == kind
    assert "slow" in str(asked.failed)


def test_json_where_a_stream_was_asked_for() -> None:
    asked = ask(json_reply(RESPONSE), stream=True)
    assert (asked.failed.kind, len(asked.requests)) == ("behavior", 1)


def test_a_callback_that_raises_ends_the_call() -> None:
    async def scene(server: RecordingServer) -> None:
        client = ModelClient([Route(prefix="openai", base_url=server.url)], environ={})

        def refuse(_: bytes) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await client.call(ModelRequest(model="m", input=HI, stream=True), refuse)
        await client.aclose()

    with_server([sse_reply([CREATED, DELTA, COMPLETED])], scene)


def test_the_parser_takes_any_chunking_and_line_ending() -> None:
    text = b"\xef\xbb\xbf: hello\r\nevent: a\r\ndata: one\r\n\r\ndata:two\ndata: more\n\ndata: end"
    for size in (1, 2, 3, 7, 100):
        parser = SseParser()
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        events = [event for chunk in chunks for event in parser.feed(chunk)]
        assert [*events, *parser.finish()] == [b"one", b"two\nmore", b"end"]


# --- failures and retries --------------------------------------------------------------------


def test_a_server_error_is_retried_and_counted() -> None:
    broken = json_reply({"error": {"message": "overloaded"}}, status=503)
    asked = ask(broken, json_reply({}, status=409), json_reply(RESPONSE))
    assert asked.ok.usage.requests == 3
    assert asked.ok.usage.input_tokens == 7
    assert 0.4 < asked.slept[0] < 0.6 < asked.slept[1] < 1.2


def test_retries_end() -> None:
    asked = ask(*[json_reply({"error": {"message": "down"}}, status=500)] * 3)
    error = asked.failed
    assert (error.kind, error.status, error.requests) == ("unavailable", 500, 3)
    assert "down" in str(error)


def test_retry_settings_of_the_request_win() -> None:
    backoff = {"initial_delay": 3, "max_delay": 4, "multiplier": 2, "jitter": False}
    retry = {"max_retries": 3, "backoff": backoff}
    asked = ask(*[json_reply({}, status=500)] * 4, settings={"retry": retry})
    assert asked.slept == [3, 4, 4]
    asked = ask(json_reply({}, status=500), settings={"retry": {"max_retries": 0}})
    assert asked.failed.requests == 1


def test_the_endpoint_s_own_delay_is_kept_unless_it_is_long() -> None:
    asked = ask(json_reply({}, status=503, retry_after_ms="1500"), json_reply(RESPONSE))
    assert asked.slept == [1.5]
    asked = ask(json_reply({}, status=503, retry_after="600"))
    assert (asked.failed.retry_after_s, asked.failed.retryable, asked.slept) == (600, True, [])


@pytest.mark.parametrize(
    ("status", "code", "kind", "retryable"),
    [
        (429, "rate_limit_exceeded", "rate_limited", True),
        (429, "insufficient_quota", "rejected", False),
        (401, "invalid_api_key", "refused_auth", False),
        (400, "bad", "rejected", False),
        (404, "model_not_found", "rejected", False),
    ],
)
def test_what_is_not_retried_here(status: int, code: str, kind: str, retryable: bool) -> None:
    body = {"error": {"code": code, "message": "why"}}
    asked = ask(json_reply(body, status=status, retry_after="7", x_request_id="req_9"))
    error = asked.failed
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert (error.code, error.body, error.request_id) == (code, body["error"], "req_9")
    assert (error.retry_after_s, error.requests, asked.slept) == (7, 1, [])


def test_a_dropped_connection_is_retried_unless_it_would_double_the_conversation() -> None:
    assert ask(Reply(cut=True), json_reply(RESPONSE)).ok.usage.requests == 2
    asked = ask(Reply(cut=True), conversation_id="conv")
    assert (asked.failed.kind, asked.failed.retryable) == ("unavailable", False)


def test_an_endpoint_that_is_not_there() -> None:
    async def go() -> None:
        async with RecordingServer([]) as server:
            url = server.url
        policy = RetryPolicy(max_retries=0)
        client = ModelClient([Route(prefix="openai", base_url=url)], environ={}, retry=policy)
        with pytest.raises(ModelCallError) as caught:
            await client.call(ModelRequest(model="m", input=HI))
        assert (caught.value.kind, caught.value.retryable) == ("unavailable", True)
        await client.aclose()

    asyncio.run(go())


def test_the_time_limit_of_a_call() -> None:
    slow = Reply(body=b"{}", hold_s=30)
    asked = ask(slow, settings={"timeout": 0.2})
    assert (asked.failed.kind, asked.failed.requests) == ("timeout", 1)


@pytest.mark.parametrize(
    ("route", "request_fields"),
    [
        ({"base_url": "nonsense"}, {}),
        ({"base_url": "http://host:port/v1"}, {}),
        ({"api_key": "sk-\nsecret"}, {}),
        ({}, {"settings": {"extra_headers": {"X": "a\nsecret"}}}),
        ({}, {"settings": {"reasoning": 3, "tool_choice": "x"}, "tools": [raw(3)]}),
        ({"api": "chat"}, {"tools": [raw({"no": "type"})]}),
        ({"api": "chat"}, {"input": [raw({"role": "user", "content": [{"type": "input_text"}]})]}),
        ({"api": "chat"}, {"input": [raw(1)]}),
        ({}, {"settings": {"metadata": {"a": object()}}}),
        ({}, {"settings": {"retry": {"max_retries": "many"}}}),
    ],
)
def test_what_the_user_got_wrong_is_misconfigured(
    route: dict[str, Any], request_fields: dict[str, Any]
) -> None:
    async def scene(server: RecordingServer) -> None:
        base = {"prefix": "openai", "base_url": server.url}
        client = ModelClient([Route(**{**base, **route})], environ={})
        with pytest.raises(ModelCallError) as caught:
            await client.call(ModelRequest(**{"model": "m", "input": HI, **request_fields}))
        await client.aclose()
        assert caught.value.kind == "misconfigured", caught.value
        assert "secret" not in str(caught.value)
        assert (caught.value.requests, server.requests) == (0, [])

    with_server([], scene)


def test_retry_after_as_a_date() -> None:
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert retry_after_s({"retry-after": "soon"}) is None


# --- routes and connections ------------------------------------------------------------------


def test_routes_of_the_environment() -> None:
    environ = {
        "OPENAI_BASE_URL": "http://proxy/v1",
        "OPENAI_ORG_ID": "org",
        "SANDSTREAM_OPENAI_API": "chat",
        "SANDSTREAM_ROUTE_OLLAMA_BASE_URL": "http://localhost:11434/v1",
        "SANDSTREAM_ROUTE_MY_LAB_BASE_URL": "http://lab/v1",
        "SANDSTREAM_ROUTE_MY_LAB_API": "responses",
        "SANDSTREAM_ROUTE_MY_LAB_API_KEY": "sk-lab",
    }
    default, lab, ollama = routes_from_env(environ)
    assert (default.base_url, default.api, default.organization) == (
        "http://proxy/v1",
        "chat",
        "org",
    )
    assert (lab.prefix, lab.api, lab.key(environ)) == ("my_lab", "responses", "sk-lab")
    assert (ollama.prefix, ollama.api) == ("ollama", "chat")
    assert ollama.key(environ) != ""
    assert resolve("ollama/llama3:8b", [default, lab, ollama]) == (ollama, "llama3:8b")
    assert resolve("openai/gpt-5", [default, lab]) == (default, "gpt-5")
    assert resolve("openai/meta/llama", [default]) == (default, "meta/llama")
    assert resolve("gpt-5", [default, lab]) == (default, "gpt-5")


@pytest.mark.parametrize(
    "environ",
    [
        {"SANDSTREAM_OPENAI_API": "soap"},
        {"SANDSTREAM_ROUTE_X_API_KEY": "k"},
    ],
)
def test_a_route_that_makes_no_sense(environ: dict[str, str]) -> None:
    with pytest.raises(ModelCallError) as caught:
        routes_from_env(environ)
    assert caught.value.kind == "misconfigured"


def test_an_unknown_prefix_says_how_to_add_it() -> None:
    routes = routes_from_env({})
    with pytest.raises(ModelCallError, match="SANDSTREAM_ROUTE_GROQ_BASE_URL") as caught:
        resolve("groq/llama", routes)
    assert caught.value.kind == "misconfigured"
    assert "openai/" in str(caught.value)
    assert resolve("groq/llama", routes, "passthrough") == (routes[0], "groq/llama")


def test_a_missing_key_is_said_before_any_request() -> None:
    client = ModelClient(environ={})
    with pytest.raises(ModelCallError, match="OPENAI_API_KEY") as caught:
        asyncio.run(client.call(ModelRequest(model="gpt-5", input=HI)))
    assert (caught.value.kind, caught.value.requests) == ("misconfigured", 0)


def test_a_route_does_not_show_its_key() -> None:
    assert "sk-secret" not in repr(Route(prefix="x", api_key="sk-secret"))


def test_headers_of_the_route_and_nobody_else_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-openai")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")

    async def scene(server: RecordingServer) -> None:
        own = Route(prefix="openai", base_url=server.url, api_key="k1", project="p")
        other = Route(prefix="lab", base_url=server.url, api_key_env="LAB_KEY")
        client = ModelClient([own, other], environ={"LAB_KEY": "k2"})
        for model in ("m", "lab/m"):
            await client.call(ModelRequest(model=model, input=HI))
        await client.aclose()
        first, second = (request.headers for request in server.requests)
        assert (first["authorization"], first["openai-project"]) == ("Bearer k1", "p")
        assert second["authorization"] == "Bearer k2"
        assert "openai-project" not in second
        assert "openai-organization" not in {**first, **second}

    with_server(lambda _: json_reply(RESPONSE), scene)


def test_a_ready_client_is_used_and_left_open() -> None:
    from openai import AsyncOpenAI

    async def scene(server: RecordingServer) -> None:
        lent = AsyncOpenAI(api_key="lent", base_url=server.url, default_headers={"X-Mine": "1"})
        client = ModelClient(environ={}, default_client=lent, sleep=lambda _: asyncio.sleep(0))
        answer = await client.call(ModelRequest(model="m", input=HI))
        await client.aclose()
        assert answer.usage.requests == 2
        assert len(server.requests) == 2
        assert server.requests[0].headers["authorization"] == "Bearer lent"
        assert server.requests[0].headers["x-mine"] == "1"
        assert not lent.is_closed()
        await lent.close()

    with_server([json_reply({}, status=500), json_reply(RESPONSE)], scene)


def test_azure_finds_its_deployment_and_version() -> None:
    from openai import AsyncAzureOpenAI

    choice = {"finish_reason": "stop", "message": {"content": "x"}}
    replies = [json_reply(RESPONSE), json_reply({"choices": [choice]})]

    async def scene(server: RecordingServer) -> None:
        endpoint = server.url.removesuffix("/v1")
        lent = AsyncAzureOpenAI(api_key="az", azure_endpoint=endpoint, api_version="v9")
        for api in ("responses", "chat"):
            environ = {"SANDSTREAM_OPENAI_API": api}
            client = ModelClient(environ=environ, default_client=lent)
            await client.call(ModelRequest(model="gpt-5", input=HI))
            await client.aclose()
        await lent.close()
        assert [request.path for request in server.requests] == [
            "/openai/responses?api-version=v9",
            "/openai/deployments/gpt-5/chat/completions?api-version=v9",
        ]
        assert {request.headers["api-key"] for request in server.requests} == {"az"}

    with_server(replies, scene)


def test_connections_are_reused_after_answers_streams_and_errors() -> None:
    stream = sse_reply([CREATED, DELTA, COMPLETED])
    refused = json_reply({"error": {"message": "no"}}, status=400)
    replies = [json_reply(RESPONSE), stream, refused, stream, json_reply(RESPONSE)]

    async def scene(server: RecordingServer) -> None:
        client = ModelClient([Route(prefix="openai", base_url=server.url)], environ={})
        for stream in (False, True, False, True, False):
            try:
                await client.call(ModelRequest(model="m", input=HI, stream=stream))
            except ModelCallError as error:
                assert error.status == 400
        await client.aclose()
        assert (len(server.requests), server.connections) == (5, 1)

    with_server(replies, scene)


def test_clients_are_added_when_calls_pile_up_and_closed_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[int] = []

    class Client:
        async def close(self) -> None:
            closed.append(1)

    async def go() -> None:
        clients = ClientPool(Client)
        async with AsyncExitStack() as stack:
            taken = [await stack.enter_async_context(clients.client()) for _ in range(40)]
            assert [taken.count(client) for client in dict.fromkeys(taken)] == [16, 16, 8]
        async with clients.client() as again:
            assert again is taken[0]
        assert closed == []
        monkeypatch.setattr(pool, "IDLE_S", -1.0)
        async with clients.client():
            assert len(closed) == 2
        await clients.aclose()
        assert len(closed) == 3

    asyncio.run(go())


def test_many_calls_at_once() -> None:
    async def scene(server: RecordingServer) -> None:
        client = ModelClient([Route(prefix="openai", base_url=server.url)], environ={})
        request = ModelRequest(model="m", input=HI)
        answers = await asyncio.gather(*(client.call(request) for _ in range(200)))
        await client.aclose()
        assert len(answers) == len(server.requests) == 200

    with_server(lambda _: json_reply(RESPONSE), scene)
