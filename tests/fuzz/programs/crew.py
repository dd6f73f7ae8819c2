"""The agents of the fuzzer's honest runs, for ``sandstream worker``. A tool that runs leaves a line
in a file outside.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sandstream import Agent, RunConfig, function_tool
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from sandstream.tool_context import ToolContext

MODEL = "gpt-test"


def _leave_effect(ctx: ToolContext[dict[str, Any]], tool: str) -> None:
    line = {"key": ctx.context["key"], "tool": tool}
    ledger = os.open(os.environ["FUZZ_LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(ledger, json.dumps(line).encode() + b"\n")
    finally:
        os.close(ledger)


@function_tool(delivery="at_most_once")
def charge(ctx: ToolContext[dict[str, Any]], cents: int) -> str:
    """Charge the customer: never twice."""
    _leave_effect(ctx, "charge")
    return f"charged {cents}"


@function_tool(delivery="at_most_once", needs_approval=True)
def refund(ctx: ToolContext[dict[str, Any]], cents: int) -> str:
    """Pay back: never twice, and only if a person agrees."""
    _leave_effect(ctx, "refund")
    return f"refunded {cents}"


plain: Agent[Any] = Agent(name="plain", model=MODEL, instructions="Answer.")
cashier: Agent[Any] = Agent(name="cashier", model=MODEL, instructions="Charge.", tools=[charge])
leaf: Agent[Any] = Agent(name="leaf", model=MODEL, instructions="Charge.", tools=[charge])
chief: Agent[Any] = Agent(
    name="chief",
    model=MODEL,
    instructions="Ask the leaf.",
    tools=[leaf.as_tool("ask_leaf", "Ask the leaf.")],
)
clerk: Agent[Any] = Agent(name="clerk", model=MODEL, instructions="Pay back.", tools=[refund])
smith: SandboxAgent[Any] = SandboxAgent(name="smith", model=MODEL, instructions="Do as told.")
run_config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient(), checkpoint="end"))
