"""Give an agent a shell: declare a workspace and watch its commands as they run.

python examples/11_shell.py
"""

from __future__ import annotations

import asyncio

from offline import model_or_script
from openai.types.responses import ResponseTextDeltaEvent

from sandstream import RunConfig, Runner
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import text, tool_call

manifest = Manifest(
    entries={
        "readings.csv": File(content=b"station,celsius\nAlta,-11\nBergen,6\nOslo,-3\nBodo,-2\n"),
    }
)
agent = SandboxAgent(
    name="Weather clerk",
    instructions="Look into the workspace, compute with commands, and answer in a sentence.",
    default_manifest=manifest,
    capabilities=[Shell()],
)

SCRIPT = [
    tool_call("exec_command", {"cmd": "cat readings.csv"}),
    tool_call("exec_command", {"cmd": "tail -n +2 readings.csv | sort -t, -k2 -n | head -1"}),
    text("Alta was coldest, at eleven below zero."),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    result = Runner.run_streamed(
        agent,
        "Which station was coldest?",
        run_config=RunConfig(sandbox=SandboxRunConfig(client=client)),
    )
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            print(event.data.delta, end="", flush=True)
        elif event.type == "run_item_stream_event" and event.item.type == "tool_call_item":
            print(f"[{event.item.raw_item.name}] {event.item.raw_item.arguments}")
        elif event.type == "run_item_stream_event" and event.item.type == "tool_call_output_item":
            print(f"  → {event.item.output[:200]!r}")
    print()
    await client.close()


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
