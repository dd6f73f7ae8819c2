"""A user's script with an approval two runs below its own: ``python claims_script.py <key>
<input>``. The first start saves the state of the waiting run; every later one approves and
continues where the previous one was killed. Prints the result.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import company

from sandstream import RunConfig, Runner, RunState


async def main(key: str, text: str) -> None:
    saved = Path(os.environ["CHAOS_LEDGER"]).with_name(f"{key}.state.json")
    if not saved.exists():
        config = RunConfig(run_key=key)
        result = await Runner.run(company.director, text, context={"key": key}, run_config=config)
        saved.write_text(result.to_state().to_string())
        print(f"waits for {len(result.interruptions)}", flush=True)
        return
    state = await RunState.from_string(company.director, saved.read_text())
    for item in state.get_interruptions():
        state.approve(item)
    result = await Runner.run(company.director, state)
    print(result.final_output, flush=True)


asyncio.run(main(*sys.argv[1:]))
