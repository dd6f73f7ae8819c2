"""Handoffs: an agent with a sandbox computes, an agent without one writes the letter.

    python examples/14_handoffs.py

A handoff is a message on the bus that says "take the next turn", addressed to the next agent.
"""

from __future__ import annotations

import asyncio

from offline import model_or_script

from sandstream import Agent, RunConfig, Runner, handoff
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import text, tool_call

manifest = Manifest(
    entries={
        "orders.csv": File(content=b"region,euros\nnorth,310\nsouth,120\nnorth,95\nsouth,400\n"),
    }
)
writer = Agent(
    name="Letter writer",
    handoff_description="Writes to customers.",
    instructions="Turn what the analyst found into two friendly sentences.",
)
analyst = SandboxAgent(
    name="Analyst",
    instructions="Sum up orders.csv by region with the shell, then hand off to the letter writer.",
    default_manifest=manifest,
    capabilities=[Shell()],
    handoffs=[writer],
)
# the writer may also send the work back
writer.handoffs = [handoff(analyst)]

SUM = "awk -F, 'NR > 1 {sum[$1] += $2} END {for (r in sum) print r, sum[r]}' orders.csv | sort"
SCRIPT = [
    tool_call("exec_command", {"cmd": SUM}),
    tool_call("transfer_to_letter_writer", {}),
    text("Dear friends, the south brought 520 euros and the north 405. Thank you for both!"),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    result = await Runner.run(
        analyst,
        "Write to our customers how the regions did.",
        run_config=RunConfig(sandbox=SandboxRunConfig(client=client)),
    )
    await client.close()
    print(f"{result.last_agent.name}: {result.final_output}")


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
