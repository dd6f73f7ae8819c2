"""Model objects and providers: the model seam for programs that bring a client, key or URL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.responses import ResponseCompletedEvent, ResponseTextDeltaEvent
from sandstream_actors.model import ModelCallError

import sandstream
from sandstream import (
    Agent,
    AgentOutputSchema,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    ModelSettings,
    ModelTracing,
    MultiProvider,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    OpenAIResponsesModel,
    RetryDecision,
    RunConfig,
    Runner,
    Usage,
    UserError,
    function_tool,
    set_default_openai_api,
    set_default_openai_client,
)
from sandstream._hosting.retry_policy import describe, with_policy
from sandstream.models import defaults
from sandstream.models.multi_provider import MultiProviderMap
from sandstream.testing import ScriptedModel, Step, error, malformed, structured, text, tool_call


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults that a test sets end with it."""
    monkeypatch.setattr(defaults, "_defaults", defaults._Defaults())
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def play(steps: list[Step], program: Callable[[ScriptedModel], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with ScriptedModel(steps) as model:
            return await program(model)

    return asyncio.run(run())


async def ask(model: Model, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "system_instructions": "Be brief.",
        "input": "hi",
        "model_settings": ModelSettings(),
        "tools": [],
        "output_schema": None,
        "handoffs": [],
        "tracing": ModelTracing.DISABLED,
        "previous_response_id": None,
        "conversation_id": None,
        "prompt": None,
    }
    return await model.get_response(**{**arguments, **changes})


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


# --- model objects --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (OpenAIResponsesModel, "/v1/responses"),
        (OpenAIChatCompletionsModel, "/v1/chat/completions"),
    ],
)
def test_a_model_object_calls_its_api_with_the_clients_key(kind: Any, path: str) -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="sk-mine") as client:
            response = await ask(kind("gpt-4.1", client), tools=[weather])
        assert response.output[0].content[0].text == "Hello."
        assert response.usage.requests == 1 and response.usage.output_tokens > 0
        (request,) = server.journal
        assert request.path == path
        assert request.headers["authorization"] == "Bearer sk-mine"
        assert request.body["model"] == "gpt-4.1"

    play([text("Hello.")], program)


def test_everything_of_a_call_reaches_the_endpoint() -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            await ask(
                OpenAIResponsesModel("m", client),
                model_settings=ModelSettings(temperature=0.5, extra_args={"user": "u"}),
                tools=[weather],
                output_schema=AgentOutputSchema(int),
                previous_response_id="resp_1",
                prompt={"id": "pmpt_1"},
            )
        body = server.journal[0].body
        assert body["instructions"] == "Be brief."
        assert body["input"] == [{"content": "hi", "role": "user"}]
        assert (body["temperature"], body["user"]) == (0.5, "u")
        assert [tool["name"] for tool in body["tools"]] == ["weather"]
        assert body["text"]["format"]["name"] == "final_output"
        assert body["previous_response_id"] == "resp_1"
        assert body["prompt"] == {"id": "pmpt_1"}
        assert "stream" not in body

    play([structured({"response": 7})], program)


def test_a_stream_yields_the_vendors_events() -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            model = OpenAIResponsesModel("m", client)
            events = [
                event
                async for event in model.stream_response(
                    None, "hi", ModelSettings(), [], None, [], ModelTracing.DISABLED
                )
            ]
        deltas = [event.delta for event in events if isinstance(event, ResponseTextDeltaEvent)]
        assert "".join(deltas) == "Hello you."
        assert isinstance(events[-1], ResponseCompletedEvent)

    play([text("Hello you.")], program)


def test_a_stream_that_is_left_ends_its_request() -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            model = OpenAIResponsesModel("m", client)
            stream = model.stream_response(
                None, "hi", ModelSettings(), [], None, [], ModelTracing.DISABLED
            )
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined]
        assert not server.journal[0].answered

    play([text("Hello you.").chunks(delta_delay_s=0.2)], program)


@pytest.mark.parametrize(
    ("step", "raised"),
    [(error(400, message="No."), BadRequestError), (malformed(), ModelBehaviorError)],
)
def test_failures_are_the_exceptions_that_users_know(step: Step, raised: Any) -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            with pytest.raises(raised):
                await ask(OpenAIResponsesModel("m", client))

    play([step], program)


def test_a_rate_limit_is_waited_for() -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            await ask(OpenAIResponsesModel("m", client))
        assert [request.status for request in server.journal] == [429, 200]

    play([error(429, retry_after=0.01), text("Now.")], program)


# --- providers ------------------------------------------------------------------------------------


def test_a_provider_follows_its_arguments_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(server: ScriptedModel) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        for provider in (OpenAIProvider(), OpenAIProvider(api_key="sk-given", organization="org")):
            await ask(provider.get_model("m"))
            await provider.aclose()
        first, second = server.journal
        assert first.headers["authorization"] == "Bearer sk-env"
        assert second.headers["authorization"] == "Bearer sk-given"
        assert second.headers["openai-organization"] == "org"

    play([text("One."), text("Two.")], program)


def test_use_responses_beats_the_default_api() -> None:
    async def program(server: ScriptedModel) -> None:
        set_default_openai_api("chat_completions")
        url = server.base_url
        by_default = OpenAIProvider(base_url=url, api_key="k")
        by_choice = OpenAIProvider(base_url=url, api_key="k", use_responses=True)
        for provider in (by_default, by_choice):
            await ask(provider.get_model("m"))
            await provider.aclose()
        assert [request.api for request in server.journal] == ["chat", "responses"]

    play([text("One."), text("Two.")], program)


def test_a_provider_uses_the_default_client() -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="sk-default") as client:
            set_default_openai_client(client)
            await ask(OpenAIProvider().get_model("m"))
        assert server.journal[0].headers["authorization"] == "Bearer sk-default"

    play([text("One.")], program)


def test_a_client_excludes_what_it_has_itself() -> None:
    client = AsyncOpenAI(api_key="k")
    with pytest.raises(UserError, match="openai_client or api_key, project"):
        OpenAIProvider(openai_client=client, api_key="k", project="p")


def test_names_with_a_slash_go_to_the_endpoint_as_they_are() -> None:
    async def program(server: ScriptedModel) -> None:
        provider = OpenAIProvider(base_url=server.base_url)
        await ask(provider.get_model("meta/llama"))
        await ask(provider.get_model("openai/gpt-oss"))
        await provider.aclose()
        assert [body["model"] for body in server.requests] == ["meta/llama", "openai/gpt-oss"]

    play([text("One."), text("Two.")], program)


def test_without_a_name_there_is_the_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_DEFAULT_MODEL", "GPT-4.1-mini")

    async def program(server: ScriptedModel) -> None:
        provider = OpenAIProvider(base_url=server.base_url)
        await ask(provider.get_model(None))
        await ask(provider.get_model(None), prompt={"id": "pmpt_1"})
        await provider.aclose()
        assert server.requests[0]["model"] == "gpt-4.1-mini"
        assert "model" not in server.requests[1]  # the prompt names it

    play([text("One."), text("Two.")], program)


class Named(ModelProvider):
    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.closed = False

    def get_model(self, model_name: str | None) -> Model:
        self.asked.append(model_name)
        return OpenAIProvider(base_url="http://127.0.0.1:9/v1").get_model(model_name)

    async def aclose(self) -> None:
        self.closed = True


def test_prefixes_choose_the_provider() -> None:
    named = Named()
    providers = MultiProviderMap()
    providers.add_provider("mine", named)
    multi = MultiProvider(provider_map=providers, openai_api_key="k")
    multi.get_model("mine/a/b")
    assert named.asked == ["a/b"]
    assert multi.get_model("openai/gpt-4.1").model == "gpt-4.1"  # type: ignore[attr-defined]
    assert multi.get_model("gpt-4.1").model == "gpt-4.1"  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"prefix 'other' is not known .known: mine, openai"):
        multi.get_model("other/x")
    asyncio.run(multi.aclose())
    assert named.closed


def test_prefixes_may_be_part_of_the_name() -> None:
    literal = MultiProvider(
        openai_api_key="k", openai_prefix_mode="model_id", unknown_prefix_mode="model_id"
    )
    for name in ("openai/gpt-oss", "meta/llama"):
        assert literal.get_model(name).model == name  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="unknown_prefix_mode must be one of"):
        MultiProvider(unknown_prefix_mode="shrug")  # type: ignore[arg-type]


# --- retry policies -------------------------------------------------------------------------------


def retried(
    failures: int,
    *,
    cause: ModelCallError | None = None,
    decision: bool | RetryDecision = True,
    has_shown: bool = False,
    **stateful: str,
) -> int:
    """How often a call that fails so often was made under a policy."""
    calls = 0

    async def call() -> ModelResponse:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise ConnectionError("down") from cause
        return ModelResponse([], Usage())

    backoff = ModelRetryBackoffSettings(initial_delay=0)
    retry = ModelRetrySettings(max_retries=2, backoff=backoff, policy=lambda context: decision)
    conversation: dict[str, Any] = {"previous_response_id": None, "conversation_id": None}
    with suppress(ConnectionError):
        asyncio.run(
            with_policy(
                call,
                retry,
                stream=has_shown,
                has_shown=lambda: has_shown,
                advise=lambda request: None,
                **{**conversation, **stateful},
            )
        )
    return calls


def test_a_policy_decides_up_to_the_maximum() -> None:
    assert retried(0) == 1
    assert retried(2) == 3
    assert retried(5) == 3
    assert retried(5, decision=False) == 1


def test_what_was_shown_is_never_repeated() -> None:
    assert retried(1, has_shown=True) == 1


def test_a_conversation_on_the_server_is_repeated_only_if_that_is_safe() -> None:
    assert retried(1, conversation_id="conv_1") == 1
    refused = ModelCallError("unavailable", "busy", status=503)
    assert retried(1, conversation_id="conv_1", cause=refused) == 2
    approved = RetryDecision(True, approve_unsafe_replay=True)
    assert retried(1, previous_response_id="resp_1", decision=approved) == 2


def test_policies_see_what_the_endpoint_said() -> None:
    error = BadRequestError.__new__(BadRequestError)
    error.__cause__ = ModelCallError("rate_limited", "slow", status=429, retry_after_s=3.0)
    normalized, advice = describe(error)
    assert (normalized.status_code, normalized.retry_after) == (429, 3.0)
    assert advice is not None and advice.replay_safety == "safe"
    foreign, nothing = describe(TimeoutError("late"))
    assert foreign.is_timeout and nothing is None


# --- in runs --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_with_a_provider(streamed: bool) -> None:
    async def program(server: ScriptedModel) -> None:
        provider = MultiProvider(openai_base_url=server.base_url, openai_api_key="sk-run")
        config = RunConfig(model_provider=provider)
        agent = Agent(name="W", model="openai/gpt-4.1", tools=[weather])
        result: Any
        if streamed:
            result = Runner.run_streamed(agent, "hi", run_config=config)
            kinds = [event.type async for event in result.stream_events()]
            assert kinds.count("run_item_stream_event") == 3
        else:
            result = await Runner.run(agent, "hi", run_config=config)
        await provider.aclose()
        assert result.final_output == "Sunny."
        assert result.context_wrapper.usage.requests == 2
        assert {r.headers["authorization"] for r in server.journal} == {"Bearer sk-run"}

    play([tool_call("weather", {"city": "Oslo"}), text("Sunny.")], program)


@pytest.mark.usefixtures("home")
def test_an_error_of_a_model_object_is_raised_as_it_was() -> None:
    async def program(server: ScriptedModel) -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            agent = Agent(name="W", model=OpenAIResponsesModel("m", client))
            with pytest.raises(BadRequestError, match="answered 400: No") as caught:
                await Runner.run(agent, "hi")
        assert caught.value.status_code == 400

    play([error(400, message="No.")], program)


# --- the surface ----------------------------------------------------------------------------------


def test_every_exported_name_exists() -> None:
    for name in sandstream.__all__:
        assert getattr(sandstream, name) is not None
    assert set(sandstream.__all__) <= set(dir(sandstream))


def test_importing_a_provider_does_not_import_the_vendor() -> None:
    program = (
        "import sys; from sandstream import OpenAIProvider, MultiProvider, Runner; "
        "OpenAIProvider(api_key='k'); print('openai' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path("/"), check=True
    )
    assert done.stdout.strip() == "False"
