"""A session at OpenAI: without an id, a conversation is begun when one is needed."""

from typing import Any

from comparison.conversations_api import conversations_api
from comparison.program import MODEL, Probe, program


def two_answers(m: Any) -> list[Any]:
    return [m.text("One."), m.text("Two.")]


def kinds(items: list[Any]) -> list[Any]:
    return [item.get("role") or item["type"] for item in items]


@program(two_answers)
async def conversation_is_begun_when_it_is_needed(sdk: Any, probe: Probe) -> Any:
    import openai

    async with conversations_api() as (api, url):
        client = openai.AsyncOpenAI(base_url=url, api_key="k")
        session = sdk.OpenAIConversationsSession(openai_client=client)
        agent = sdk.Agent(name="A", model=MODEL)
        probe.note(api.begun)
        one = await sdk.Runner.run(agent, probe.input, session=session)
        probe.note(api.begun, session.session_id, kinds(api.items["conv_1"]))
        two = await sdk.Runner.run(agent, "And then?", session=session)
        probe.note(api.begun, session.session_id, kinds(api.items["conv_1"]))
        await client.close()
        return one.final_output, two.final_output


@program(two_answers)
async def conversation_is_begun_by_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    import openai

    async with conversations_api() as (api, url):
        client = openai.AsyncOpenAI(base_url=url, api_key="k")
        session = sdk.OpenAIConversationsSession(openai_client=client)
        result = sdk.Runner.run_streamed(
            sdk.Agent(name="A", model=MODEL), probe.input, session=session
        )
        async for _ in result.stream_events():
            pass
        probe.note(api.begun, session.session_id, kinds(api.items["conv_1"]))
        await client.close()
        return result.final_output


@program(lambda m: [m.tool_call("f"), m.text("Done.")])
async def conversation_is_begun_before_a_pause(sdk: Any, probe: Probe) -> Any:
    import openai

    @sdk.function_tool(needs_approval=True)
    def f() -> str:
        return "f"

    async with conversations_api() as (api, url):
        client = openai.AsyncOpenAI(base_url=url, api_key="k")
        session = sdk.OpenAIConversationsSession(openai_client=client)
        agent = sdk.Agent(name="A", model=MODEL, tools=[f])
        first = await sdk.Runner.run(agent, probe.input, session=session)
        probe.note(api.begun, kinds(api.items["conv_1"]))
        state = first.to_state()
        state.approve(first.interruptions[0])
        second = await sdk.Runner.run(agent, state, session=session)
        probe.note(api.begun, kinds(api.items["conv_1"]))
        await client.close()
        return second.final_output
