"""A user's script with a session at a vendor: ``python talk_script.py <key> <url of the vendor>``.
No start knows the id of the conversation. Everything that its agent asks for is approved.
"""

from __future__ import annotations

import asyncio
import sys

from openai import AsyncOpenAI

from sandstream import Agent, OpenAIConversationsSession, RunConfig, Runner, function_tool


@function_tool
def look() -> str:
    return "looked"


@function_tool(needs_approval=True)
def pay() -> str:
    return "paid"


async def main(key: str, url: str) -> None:
    client = AsyncOpenAI(base_url=url, api_key="k")
    session = OpenAIConversationsSession(openai_client=client)
    agent = Agent(name="talker", model="gpt-test", tools=[look, pay])
    result = await Runner.run(agent, "Hello.", session=session, run_config=RunConfig(run_key=key))
    while result.interruptions:
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(agent, state, session=session)
    print(result.final_output, session.session_id, flush=True)
    await client.close()


asyncio.run(main(*sys.argv[1:]))
