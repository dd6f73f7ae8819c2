"""What goes to OpenAI's own endpoint, where both SDKs add what other endpoints do not understand.

The client believes that it talks to api.openai.com; its transport goes to the scripted model.
"""

from importlib import import_module
from typing import Any

from comparison.program import MODEL, Probe, program
from comparison.programs.models import _tooled


def _loop(m: Any) -> list[Any]:
    usage = m.Usage(input_tokens=9, output_tokens=3)
    calls = [m.answer(m.tool_call("f", {"x": x}), usage=usage) for x in (1, 2)]
    return [*calls, m.answer("Done.", usage=usage)]


def _config(sdk: Any, probe: Probe, **more: Any) -> Any:
    import openai

    name = openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]
    http: Any = import_module(name)
    target = http.URL(probe.base_url)

    class Redirected(http.AsyncHTTPTransport):
        async def handle_async_request(self, request: Any) -> Any:
            request.url = request.url.copy_with(
                scheme=target.scheme, host=target.host, port=target.port
            )
            return await super().handle_async_request(request)

    client = openai.AsyncOpenAI(
        api_key="sk-official",
        base_url="https://api.openai.com/v1",
        http_client=openai.DefaultAsyncHttpxClient(transport=Redirected()),
    )
    use_responses = more.pop("use_responses", True)
    provider = sdk.OpenAIProvider(openai_client=client, use_responses=use_responses)
    return sdk.RunConfig(model_provider=provider, **more)


@program(_loop)
async def official_responses(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_tooled(sdk), probe.input, run_config=_config(sdk, probe))


@program(lambda m: [m.answer("Hello.", usage=m.Usage(input_tokens=9))])
async def official_group(sdk: Any, probe: Probe) -> Any:
    config = _config(sdk, probe, group_id="thread-7")
    return await sdk.Runner.run(sdk.Agent(name="G", model=MODEL), probe.input, run_config=config)


@program(_loop)
async def official_chat(sdk: Any, probe: Probe) -> Any:
    config = _config(sdk, probe, use_responses=False)
    return await sdk.Runner.run(_tooled(sdk), probe.input, run_config=config)


@program(_loop)
async def official_chat_streamed(sdk: Any, probe: Probe) -> Any:
    config = _config(sdk, probe, use_responses=False)
    return sdk.Runner.run_streamed(_tooled(sdk), probe.input, run_config=config)


@program(lambda m: [m.answer("Hello.", usage=m.Usage(input_tokens=9))])
async def official_own_cache_key(sdk: Any, probe: Probe) -> Any:
    settings = sdk.ModelSettings(extra_args={"prompt_cache_key": "mine"})
    agent = sdk.Agent(name="G", model=MODEL, model_settings=settings)
    return await sdk.Runner.run(agent, probe.input, run_config=_config(sdk, probe))


@program(lambda m: [m.answer("Hello.", usage=m.Usage(input_tokens=9))])
async def official_conversation(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="G", model=MODEL)
    return await sdk.Runner.run(
        agent, probe.input, conversation_id="conv_7", run_config=_config(sdk, probe)
    )
