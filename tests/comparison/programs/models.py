"""Endpoints and models: server-side conversations, HTTP errors, Chat Completions, own models."""

import asyncio
from typing import Any

from comparison.program import MODEL, Probe, program
from comparison.programs.outputs import Event
from comparison.report import stream_report


def _tooled(sdk: Any, marker: str = "") -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        """Add one."""
        return f"{x + 1}{marker}"

    return sdk.Agent(name="Tooled", instructions="Use f.", model=MODEL, tools=[f])


def _loop(m: Any) -> list[Any]:
    return [m.tool_call("f", {"x": 1}), m.tool_call("f", {"x": 2}), m.text("Done.")]


# --- server-side conversations --------------------------------------------------------------------


@program(_loop)
async def auto_previous_response_id(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_tooled(sdk), probe.input, auto_previous_response_id=True)


@program(lambda m: [m.text("One."), m.tool_call("f", {"x": 1}), m.text("Two.")])
async def previous_response_id(sdk: Any, probe: Probe) -> Any:
    agent = _tooled(sdk)
    first = await sdk.Runner.run(agent, probe.input)
    second = await sdk.Runner.run(agent, "And now?", previous_response_id=first.last_response_id)
    return first, second


@program(
    lambda m: [
        m.tool_call("f", {"x": 1}).when("Please do"),
        m.text("Done.").when("2 <conversation_id>"),
    ]
)
async def conversation_id(sdk: Any, probe: Probe) -> Any:
    agent = _tooled(sdk, " <conversation_id>")
    return await sdk.Runner.run(agent, probe.input, conversation_id="conv_1")


@program(_loop)
async def streamed_auto_previous_response_id(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(_tooled(sdk), probe.input, auto_previous_response_id=True)


# --- what endpoints say when they do not answer ---------------------------------------------------


@program(lambda m: [m.error(400, message="No such thing.", code="bad_thing")])
async def http_400(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.error(401, message="Wrong key.", code="invalid_api_key")])
async def http_401(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.error(404, message="No such model.", code="model_not_found")])
async def http_404(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.error(500, message="Oops.", retry_after=0.01).forever()])
async def http_500(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.error(500, message="Oops.", retry_after=0.01), m.text("Back again.")])
async def http_500_once(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.error(429, message="Slow down.", retry_after=0.01), m.text("Now.")])
async def http_429_once(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.drop_connection().forever()])
async def connection_dropped(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.malformed()])
async def malformed_answer(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.malformed("[1, 2]")])
async def answer_of_a_wrong_shape(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.status_failed("It broke.")])
async def failed_response(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.incomplete("Hal")])
async def incomplete_response(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.answer()])
async def empty_answer(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.text("Late.").after(1.0)])
async def model_timeout(sdk: Any, probe: Probe) -> Any:
    settings = sdk.ModelSettings(timeout=0.1)
    agent = sdk.Agent(name="E", model=MODEL, model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(
    lambda m: [
        m.tool_calls(
            m.tool_call("f", {"x": 1}, call_id="c"), m.tool_call("f", {"x": 2}, call_id="c")
        )
    ]
)
async def one_call_id_for_two_calls(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_tooled(sdk), probe.input)


@program(
    lambda m: [m.tool_call("f", {"x": 1}, call_id="c"), m.tool_call("f", {"x": 2}, call_id="c")]
)
async def call_id_used_again(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_tooled(sdk), probe.input)


@program(lambda m: [])
async def unknown_model_prefix(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="E", model="nobody/model"), probe.input)


# --- Chat Completions -----------------------------------------------------------------------------


@program(_loop)
async def chat_tool_loop(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    return await sdk.Runner.run(_tooled(sdk), probe.input)


@program(_loop)
async def chat_streamed_tool_loop(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    result = sdk.Runner.run_streamed(_tooled(sdk), probe.input)
    return await stream_report(result)


@program(lambda m: [m.structured({"name": "Fair", "guests": [], "color": "red"})])
async def chat_structured(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    settings = sdk.ModelSettings(
        temperature=0.1,
        max_tokens=9,
        metadata={"a": "b"},
        store=True,
        reasoning={"effort": "low"},
        verbosity="low",
        extra_args={"seed": 7},
        frequency_penalty=0.2,
        presence_penalty=0.1,
    )
    agent = sdk.Agent(name="Typed", model=MODEL, output_type=Event, model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.refusal("I will not.")])
async def chat_refusal(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    return await sdk.Runner.run(sdk.Agent(name="R", model=MODEL), probe.input)


@program(lambda m: [m.error(400, message="No.")])
async def chat_http_400(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    return await sdk.Runner.run(sdk.Agent(name="R", model=MODEL), probe.input)


@program(lambda m: [m.text("Seen.")])
async def chat_list_input_with_image(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    items = [
        {"role": "system", "content": "Rules."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": probe.input},
                {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
            ],
        },
    ]
    return await sdk.Runner.run(sdk.Agent(name="R", model=MODEL), items)


# --- models as objects ----------------------------------------------------------------------------


def _client(probe: Probe) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=probe.base_url, api_key="sk-own")


@program(_loop)
async def responses_model_object(sdk: Any, probe: Probe) -> Any:
    model = sdk.OpenAIResponsesModel(model=MODEL, openai_client=_client(probe))
    return await sdk.Runner.run(_tooled(sdk).clone(model=model), probe.input)


@program(_loop)
async def streamed_responses_model_object(sdk: Any, probe: Probe) -> Any:
    model = sdk.OpenAIResponsesModel(model=MODEL, openai_client=_client(probe))
    return sdk.Runner.run_streamed(_tooled(sdk).clone(model=model), probe.input)


@program(_loop)
async def chat_model_object(sdk: Any, probe: Probe) -> Any:
    model = sdk.OpenAIChatCompletionsModel(model=MODEL, openai_client=_client(probe))
    return await sdk.Runner.run(_tooled(sdk).clone(model=model), probe.input)


@program(_loop)
async def provider_in_the_run_config(sdk: Any, probe: Probe) -> Any:
    provider = sdk.OpenAIProvider(base_url=probe.base_url, api_key="k", use_responses=False)
    config = sdk.RunConfig(model_provider=provider)
    return await sdk.Runner.run(_tooled(sdk), probe.input, run_config=config)


@program(lambda m: [m.error(400, message="No such thing.")])
async def http_400_of_a_model_object(sdk: Any, probe: Probe) -> Any:
    model = sdk.OpenAIResponsesModel(model=MODEL, openai_client=_client(probe))
    return await sdk.Runner.run(sdk.Agent(name="E", model=model), probe.input)


@program(lambda m: [m.text("Hello.")])
async def multi_provider(sdk: Any, probe: Probe) -> Any:
    provider = sdk.MultiProvider(openai_base_url=probe.base_url, openai_api_key="k")
    agent = sdk.Agent(name="M", model="openai/gpt-4.1")
    return await sdk.Runner.run(
        agent, probe.input, run_config=sdk.RunConfig(model_provider=provider)
    )


@program(lambda m: [])
async def provider_with_client_and_key(sdk: Any, probe: Probe) -> Any:
    return sdk.OpenAIProvider(openai_client=_client(probe), api_key="k")


def _own_model(sdk: Any, probe: Probe) -> Any:
    from openai.types.responses import (
        Response,
        ResponseCompletedEvent,
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Own(sdk.Model):
        calls = 0

        def _output(self) -> list[Any]:
            self.calls += 1
            if self.calls == 1:
                return [
                    ResponseFunctionToolCall(
                        id="fc_1", type="function_call", name="f", call_id="c1", arguments='{"x":1}'
                    )
                ]
            part = ResponseOutputText(text="Own.", type="output_text", annotations=[])
            return [
                ResponseOutputMessage(
                    id="msg_1", type="message", role="assistant", status="completed", content=[part]
                )
            ]

        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            probe.note(len(args), sorted(kwargs))
            tools = [tool.name for tool in kwargs["tools"]]
            probe.note(kwargs["system_instructions"], kwargs["input"], tools)
            probe.note(kwargs["model_settings"].temperature, kwargs["output_schema"])
            usage = sdk.Usage(requests=1, input_tokens=3, output_tokens=2, total_tokens=5)
            return sdk.ModelResponse(output=self._output(), usage=usage, response_id=None)

        async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            probe.note(len(args), sorted(kwargs))
            response = Response(
                id="resp_own",
                created_at=1,
                model="own",
                object="response",
                output=self._output(),
                tool_choice="auto",
                tools=[],
                parallel_tool_calls=False,
            )
            yield ResponseCompletedEvent(
                type="response.completed", response=response, sequence_number=0
            )

    return Own()


@program(lambda m: [])
async def own_model(sdk: Any, probe: Probe) -> Any:
    settings = sdk.ModelSettings(temperature=0.5)
    agent = _tooled(sdk).clone(model=_own_model(sdk, probe), model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def own_model_streamed(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(_tooled(sdk).clone(model=_own_model(sdk, probe)), probe.input)


@program(lambda m: [])
async def own_model_raises(sdk: Any, probe: Probe) -> Any:
    class Broken(sdk.Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("no model today")

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    return await sdk.Runner.run(sdk.Agent(name="B", model=Broken()), probe.input)


@program(lambda m: [m.text("Hello.")])
async def chat_streamed_with_usage(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    settings = sdk.ModelSettings(include_usage=True, parallel_tool_calls=True, tool_choice="auto")
    agent = _tooled(sdk).clone(model_settings=settings)
    result = sdk.Runner.run_streamed(agent, probe.input)
    return await stream_report(result)


@program(lambda m: [m.answer(m.reasoning("Hm."), "Hello.")])
async def chat_reasoning(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    return await sdk.Runner.run(sdk.Agent(name="R", model=MODEL), probe.input)


@program(lambda m: [m.tool_calls(("look", {}), ("data", {})), m.text("Seen.")])
async def chat_tool_outputs(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")

    @sdk.function_tool
    def look() -> Any:
        return sdk.ToolOutputText(text="a tree")

    @sdk.function_tool
    def data() -> Any:
        return {"a": 1}

    agent = sdk.Agent(name="R", model=MODEL, tools=[look, data])
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.malformed()])
async def chat_malformed_answer(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    return await sdk.Runner.run(sdk.Agent(name="R", model=MODEL), probe.input)


@program(lambda m: [m.text("Hello.")])
async def chat_with_what_only_responses_knows(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    agent = sdk.Agent(name="R", model=MODEL, prompt={"id": "pmpt_1"})
    return await sdk.Runner.run(agent, probe.input, previous_response_id="resp_1")


@program(lambda m: [m.text("One."), m.text("Two.")])
async def from_chat_to_responses(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="R", model=MODEL)
    sdk.set_default_openai_api("chat_completions")
    first = await sdk.Runner.run(agent, probe.input)
    sdk.set_default_openai_api("responses")
    items = [*first.to_input_list(), {"role": "user", "content": "More."}]
    return await sdk.Runner.run(agent, items)


@program(lambda m: [m.error(503, message="Busy.", retry_after=0.01).times(4), m.text("Now.")])
async def runner_retries(sdk: Any, probe: Probe) -> Any:
    retry = sdk.ModelRetrySettings(
        max_retries=4,
        backoff={"initial_delay": 0.01, "max_delay": 0.01, "jitter": False},
        policy=sdk.retry_policies.http_status([503]),
    )
    agent = sdk.Agent(name="E", model=MODEL, model_settings=sdk.ModelSettings(retry=retry))
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.error(400, message="Odd.", retry_after=0.01), m.text("Now.")])
async def runner_retries_a_400_by_policy(sdk: Any, probe: Probe) -> Any:
    def policy(context: Any) -> bool:
        probe.note(context.attempt, context.max_retries, context.stream)
        probe.note(context.normalized.status_code)
        return True

    retry = sdk.ModelRetrySettings(max_retries=1, backoff={"initial_delay": 0.01}, policy=policy)
    agent = sdk.Agent(name="E", model=MODEL, model_settings=sdk.ModelSettings(retry=retry))
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.error(503, message="Busy.", retry_after=0.01).forever()])
async def policy_that_never_retries(sdk: Any, probe: Probe) -> Any:
    retry = sdk.ModelRetrySettings(max_retries=3, policy=sdk.retry_policies.never())
    agent = sdk.Agent(name="E", model=MODEL, model_settings=sdk.ModelSettings(retry=retry))
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.error(400, message="Odd.", retry_after=0.01), m.text("Now.")])
async def streamed_retries_by_policy(sdk: Any, probe: Probe) -> Any:
    retry = sdk.ModelRetrySettings(
        max_retries=1,
        backoff={"initial_delay": 0.01},
        policy=sdk.retry_policies.any(
            sdk.retry_policies.network_error(), sdk.retry_policies.http_status([400])
        ),
    )
    agent = sdk.Agent(name="E", model=MODEL, model_settings=sdk.ModelSettings(retry=retry))
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [])
async def own_model_gives_retry_advice(sdk: Any, probe: Probe) -> Any:
    class Shaky(sdk.Model):
        calls = 0

        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise ConnectionError("not yet")
            return sdk.ModelResponse(output=[], usage=sdk.Usage(requests=1), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        def get_retry_advice(self, request: Any) -> Any:
            probe.note(type(request.error).__name__, request.attempt, request.stream)
            return sdk.ModelRetryAdvice(suggested=True, retry_after=0.01)

    retry = sdk.ModelRetrySettings(max_retries=1, policy=sdk.retry_policies.provider_suggested())
    settings = sdk.ModelSettings(retry=retry)
    agent = sdk.Agent(name="B", model=Shaky(), model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def own_model_times_out(sdk: Any, probe: Probe) -> Any:
    class Slow(sdk.Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(10)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    settings = sdk.ModelSettings(timeout=0.05)
    agent = sdk.Agent(name="B", model=Slow(), model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)
