"""An app of several agents, and what its model says: for tests of trees and approvals."""

from __future__ import annotations

from sandstream.testing import script_for, text, tool_call, tool_calls

TEAM = '''
import asyncio
from sandstream import Agent, GuardrailFunctionOutput, function_tool, input_guardrail

@function_tool
async def search(q: str) -> str:
    """Search."""
    if q == "whales":
        await asyncio.sleep(120)
    return f"three facts about {q}"

@function_tool(needs_approval=True)
def refund(amount: float, customer: str) -> str:
    """Give money back."""
    return f"refunded {amount} to {customer}"

@input_guardrail
def no_swearing(context, agent, input):
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="damn" in str(input))

writer = Agent(name="writer", instructions="Write.", model="gpt-5")
researcher = Agent(name="researcher", instructions="Research.", tools=[search], model="gpt-5")
cashier = Agent(name="cashier", instructions="Pay.", tools=[refund], model="gpt-5")
manager = Agent(
    name="manager",
    instructions="Manage.",
    model="gpt-5",
    tools=[
        researcher.as_tool("research", "Ask the researcher."),
        cashier.as_tool("ask_cashier", "Ask the cashier."),
        refund,
    ],
    handoffs=[writer],
    input_guardrails=[no_swearing],
)
'''
SCRIPTS = [
    script_for("about cats", [tool_call("search", {"q": "cats"}), text("Cats sleep.")]),
    script_for("about dogs", [tool_call("search", {"q": "dogs"}), text("Dogs bark.")]),
    script_for("about whales", [tool_call("search", {"q": "whales"}), text("Whales sing.")]),
    script_for("pay Ann", [tool_call("refund", {"amount": 12, "customer": "Ann"}), text("Paid.")]),
    script_for(
        "compare",
        [
            tool_calls(
                ("research", {"input": "about cats"}), ("research", {"input": "about dogs"})
            ),
            text("Cats sleep, dogs bark."),
        ],
    ),
    script_for("long search", [tool_call("research", {"input": "about whales"}), text("Sung.")]),
    script_for(
        "settle",
        [
            tool_calls(
                ("ask_cashier", {"input": "pay Ann"}), ("refund", {"amount": 3, "customer": "Bob"})
            ),
            tool_call("transfer_to_writer", {}),
            text("All is settled."),
        ],
    ),
    script_for(
        "two refunds",
        [
            tool_calls(
                ("refund", {"amount": 1, "customer": "Ann"}),
                ("refund", {"amount": 2, "customer": "Bob"}),
            ),
            text("Both done."),
        ],
    ),
    script_for(
        "one refund", [tool_call("refund", {"amount": 5, "customer": "Cleo"}), text("Refunded.")]
    ),
    script_for("chat", [text("First."), text("Second."), text("Third.")]),
]
