"""The agent of the chaos tests. Every run of a tool appends a line to an external file."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from pydantic import BaseModel

from sandstream import Agent, RunContextWrapper, function_tool
from sandstream.tool_context import ToolContext


class Receipt(BaseModel):
    """The structured final output: validated by the tool host."""

    total: int


def leave_effect(ctx: ToolContext[dict[str, Any]], tool: str) -> None:
    """Append one complete line and sync it to disk, so that it survives a kill."""
    line = {"key": ctx.context["key"], "tool": tool, "call": ctx.tool_call_id, "pid": os.getpid()}
    ledger = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(ledger, json.dumps(line).encode() + b"\n")
        os.fsync(ledger)
    finally:
        os.close(ledger)


@function_tool
def note(ctx: ToolContext[dict[str, Any]], text: str) -> str:
    """Write a note: may run again."""
    leave_effect(ctx, "note")
    return f"noted {text}"


@function_tool(delivery="at_most_once")
def charge(ctx: ToolContext[dict[str, Any]], cents: int) -> str:
    """Charge the customer: never twice."""
    leave_effect(ctx, "charge")
    return f"charged {cents}"


@function_tool
async def slow(ctx: ToolContext[dict[str, Any]], seconds: float) -> str:
    """Take a while: may run again."""
    leave_effect(ctx, "slow")
    await asyncio.sleep(seconds)
    return "at last"


@function_tool(delivery="at_most_once")
async def wire(ctx: ToolContext[dict[str, Any]], seconds: float) -> str:
    """Send money, which takes a while: never twice."""
    leave_effect(ctx, "wire")
    await asyncio.sleep(seconds)
    return "sent"


@function_tool
def big(ctx: ToolContext[dict[str, Any]], size: int) -> str:
    """Return more than a message of the log may carry."""
    leave_effect(ctx, "big")
    return "x" * size


def instructions(ctx: RunContextWrapper[dict[str, Any]], agent: Agent[Any]) -> str:
    """Computed each turn, so that each turn begins with a call to the tool host."""
    return f"You serve {ctx.context['key']}."


clerk: Agent[dict[str, Any]] = Agent(
    name="clerk",
    model="gpt-test",
    instructions=instructions,
    tools=[note, charge, slow, wire, big],
    output_type=Receipt,
)
