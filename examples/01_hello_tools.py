"""An agent with tools. Every step of its run is an event in a durable log.

python examples/01_hello_tools.py
"""

from __future__ import annotations

import asyncio

from offline import model_or_script

from sandstream import Agent, Runner, function_tool
from sandstream.testing import text, tool_calls


@function_tool
def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Its name.
    """
    return {"Oslo": "snow, -4 °C", "Cairo": "sun, 31 °C"}.get(city, "unknown")


assistant = Agent(name="Assistant", instructions="Answer in one sentence.", tools=[weather])

SCRIPT = [
    tool_calls(("weather", {"city": "Oslo"}), ("weather", {"city": "Cairo"})),
    text("Oslo has snow at -4 °C, Cairo sun at 31 °C."),
]


async def main() -> None:
    result = await Runner.run(assistant, "How is the weather in Oslo and Cairo?")
    for item in result.new_items:
        print(f"{item.type:22} {item.agent.name}")
    print(result.final_output)


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
