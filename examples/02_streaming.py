"""The answer as it arrives: tokens go over the bus live, finished items come from the log.

python examples/02_streaming.py
"""

from __future__ import annotations

import asyncio

from offline import model_or_script

from sandstream import Agent, Runner, function_tool
from sandstream.testing import text, tool_call


@function_tool
async def search(query: str) -> str:
    """Search the library."""
    return "Sandstones form where grains of sand are pressed and cemented."


librarian = Agent(name="Librarian", instructions="Look it up, then explain.", tools=[search])

SCRIPT = [
    tool_call("search", {"query": "sandstone"}),
    text("Sand settles, is buried, and minerals cement the grains: sandstone.").chunks(
        12, delta_delay_s=0.03
    ),
]


async def main() -> None:
    result = Runner.run_streamed(librarian, "How does sandstone form?")
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            if event.data.type == "response.output_text.delta":
                print(event.data.delta, end="", flush=True)
        elif event.type == "run_item_stream_event":
            print(f"\n[{event.name}]")
    print(f"{result.current_turn} turns, {len(result.final_output)} characters")


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
