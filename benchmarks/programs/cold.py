"""One run of one turn in a fresh process, on either side.

python cold.py sandstream|agents asyncio|uvloop
"""

from __future__ import annotations

import sys

import lab_desk

if sys.argv[1] == "agents":
    from agents import Agent, Runner
else:
    from sandstream import Agent, Runner


async def main() -> None:
    agent = Agent(name="Short", instructions="Be short.", model="gpt-4.1")
    result = await Runner.run(agent, "Hello?")
    lab_desk.answer({"output": result.final_output})


lab_desk.run(main, sys.argv[2])
