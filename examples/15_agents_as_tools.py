"""Agents as tools: two reviewers, each in its own workspace, work at the same time.

    python examples/15_agents_as_tools.py

Each call of an agent tool is a child run: `sandstream show RUN` draws the tree. The caller sees
what the reviewers return, never their files.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from offline import model_or_script
from pydantic import BaseModel

from sandstream import Agent, RunConfig, Runner
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import script_for, structured, text, tool_call, tool_calls


class Review(BaseModel):
    risk: str
    finding: str


async def as_json(result: Any) -> str:
    """The text of a review for the caller's model."""
    return json.dumps(result.final_output.model_dump(), sort_keys=True)


def reviewer(name: str, paper: str, content: bytes) -> SandboxAgent[Any]:
    return SandboxAgent(
        name=name,
        instructions=f"Read {paper} and judge it.",
        default_manifest=Manifest(entries={paper: File(content=content)}),
        capabilities=[Shell()],
        output_type=Review,
    )


price = reviewer("Price reviewer", "price.md", b"Discount: 40 %, no end date.\n")
plan = reviewer("Plan reviewer", "plan.md", b"Go live in one week. No test is planned.\n")

SCRIPTS = [
    script_for(
        "Check the price",
        [
            tool_call("exec_command", {"cmd": "cat price.md"}),
            structured({"risk": "high", "finding": "the discount never ends"}),
        ],
    ),
    script_for(
        "Check the plan",
        [
            tool_call("exec_command", {"cmd": "cat plan.md"}),
            structured({"risk": "medium", "finding": "nothing is tested"}),
        ],
    ),
    script_for(
        "Should we sign",
        [
            tool_calls(
                ("review_price", {"input": "Check the price."}),
                ("review_plan", {"input": "Check the plan."}),
            ),
            text("Not yet: the discount never ends, and nothing is tested."),
        ],
    ),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    in_a_sandbox = RunConfig(sandbox=SandboxRunConfig(client=client))
    desk = Agent(
        name="Deal desk",
        instructions="Have the price and the plan reviewed, then say whether to sign.",
        tools=[
            price.as_tool(
                tool_name="review_price",
                tool_description="Reviews the price.",
                custom_output_extractor=as_json,
                run_config=in_a_sandbox,
            ),
            plan.as_tool(
                tool_name="review_plan",
                tool_description="Reviews the plan.",
                custom_output_extractor=as_json,
                run_config=in_a_sandbox,
            ),
        ],
    )
    result = await Runner.run(desk, "Should we sign?")
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(item.output)
    print(result.final_output)
    await client.close()


if __name__ == "__main__":
    with model_or_script(conversations=SCRIPTS):
        asyncio.run(main())
