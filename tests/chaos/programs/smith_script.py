"""A user's script with a sandbox agent: ``python smith_script.py <key> <input>``. Prints the final
output; a second start continues where the first was killed.
"""

from __future__ import annotations

import asyncio
import sys

import forge

from sandstream import Runner


async def main(key: str, text: str) -> None:
    smith = forge.smith_of("smith-end")
    result = await Runner.run(smith, text, run_config=forge.config_of("end", run_key=key))
    print(result.final_output, flush=True)


asyncio.run(main(*sys.argv[1:]))
