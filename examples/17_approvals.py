"""Human in the loop: the program ends while a payment waits; the run continues after an approval.

    python examples/17_approvals.py [STATE_FILE]      asks, saves the state, and ends
    python examples/17_approvals.py [STATE_FILE]      approves, and the same run continues

Nothing runs in between. A deployed agent needs no state file: `sandstream approvals` lists the
calls that wait, and `sandstream approve RUN` approves one, from anywhere and at any time.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from offline import model_or_script

from sandstream import Agent, Runner, RunState, function_tool
from sandstream.testing import text, tool_calls

STATE_FILE = Path(
    sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "sandstream-approval.json"
)


@function_tool
def balance() -> str:
    """What is on the account."""
    return "1200 EUR"


@function_tool(needs_approval=True)
def pay(euros: int, to: str) -> str:
    """Pay somebody."""
    return f"paid {euros} EUR to {to}"


clerk = Agent(name="Clerk", instructions="Pay what is asked.", tools=[balance, pay])

SCRIPT = [
    tool_calls(("balance", {}), ("pay", {"euros": 70, "to": "the baker"})),
    text("The baker has the money."),
]


async def ask() -> None:
    result = await Runner.run(clerk, "Pay 70 EUR to the baker.")
    for item in result.interruptions:
        print(f"{item.agent.name} wants to call {item.name}({item.arguments})")
    STATE_FILE.write_text(result.to_state().to_string())
    print("the question is saved; start me again to say yes")


async def answer() -> None:
    state = await RunState.from_string(clerk, STATE_FILE.read_text())
    for question in state.get_interruptions():
        state.approve(question)
    result = await Runner.run(clerk, state)
    STATE_FILE.unlink()
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(item.output)
    print(result.final_output)


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(answer() if STATE_FILE.exists() else ask())
