"""The agents of the composition chaos tests, in two desks that different workers can host.

Front desk (harness pool ``main``): ``reception`` and ``closer`` are the ends of a chain of
handoffs, ``chief`` calls many agents at once, ``overseer`` watches the agents that it calls,
``gatekeeper`` has a slow guardrail, ``clerk`` needs an approval, ``manager`` and ``director`` are
above it, ``talker`` has conversations. Back desk (pool ``second``): ``specialist`` is the middle of
the chain, ``expert`` is called by the chief.
"""

from __future__ import annotations

import asyncio
from typing import Any

import desk

from sandstream import Agent, GuardrailFunctionOutput, function_tool, input_guardrail
from sandstream.deployed_agent import DeployedAgent
from sandstream.tool_context import ToolContext

MODEL = "gpt-test"


@function_tool(delivery="at_most_once", needs_approval=True)
def refund(ctx: ToolContext[dict[str, Any]], cents: int) -> str:
    """Pay back: never twice, and only if a person agrees."""
    desk.leave_effect(ctx, "refund")
    return f"refunded {cents}"


def _agent(name: str, **more: Any) -> Agent[dict[str, Any]]:
    return Agent(name=name, model=MODEL, instructions=desk.instructions, **more)


def _tool(agent: Agent[Any]) -> Any:
    return agent.as_tool(f"ask_{agent.name}", f"Ask {agent.name}.")


leaf = _agent("leaf", tools=[desk.note, desk.charge, desk.slow])
expert = _agent("expert", tools=[desk.note, desk.charge])
clerk = _agent("clerk", tools=[desk.note, refund])
manager = _agent("manager", tools=[desk.note, _tool(clerk)])
director = _agent("director", tools=[_tool(manager)])
chief = _agent("chief", tools=[desk.note, _tool(leaf), _tool(DeployedAgent(name="expert"))])
overseer = _agent(
    "overseer",
    tools=[desk.note, leaf.as_tool("ask_leaf", "Ask leaf.", on_stream=lambda event: None)],
)


@input_guardrail
async def slow_check(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    """Slow on purpose: the model is called meanwhile."""
    await asyncio.sleep(0.2)
    return GuardrailFunctionOutput(None, tripwire_triggered=False)


gatekeeper = _agent("gatekeeper", tools=[desk.note, desk.charge], input_guardrails=[slow_check])
talker = _agent("talker", tools=[desk.note, desk.charge])
closer = _agent("closer", tools=[desk.charge])
specialist = _agent(
    "specialist", tools=[desk.note, desk.charge], handoffs=[DeployedAgent(name="closer")]
)
reception = _agent("reception", tools=[desk.note], handoffs=[DeployedAgent(name="specialist")])

FRONT = {
    it.name: it
    for it in (chief, clerk, closer, director, gatekeeper, manager, overseer, reception, talker)
}
BACK = {it.name: it for it in (expert, specialist)}
