"""A user's script: ``python script.py <key> <input>``. Prints the result; a second start continues
where the first was killed.
"""

from __future__ import annotations

import asyncio
import json
import sys

import desk

from sandstream import RunConfig, Runner


async def main(key: str, text: str) -> None:
    config = RunConfig(run_key=key)
    result = await Runner.run(desk.clerk, text, context={"key": key}, run_config=config)
    print(json.dumps({"total": result.final_output.total}), flush=True)


asyncio.run(main(*sys.argv[1:]))
