"""The agents of the chaos tests of composition, in two desks that different workers can host.

Front desk (harness pool ``main``): ``reception`` and ``closer`` are the ends of a chain of
handoffs, ``chief`` asks many agents at once, ``clerk`` needs a person's agreement, ``manager`` and
``director`` are above it, ``talker`` has conversations. Back desk (pool ``second``):
``specialist`` is the middle of the chain, ``expert`` is asked by the chief.
"""

from __future__ import annotations

from typing import Any

import desk

from sandstream import Agent, function_tool
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
talker = _agent("talker", tools=[desk.note, desk.charge])
closer = _agent("closer", tools=[desk.charge])
specialist = _agent(
    "specialist", tools=[desk.note, desk.charge], handoffs=[DeployedAgent(name="closer")]
)
reception = _agent("reception", tools=[desk.note], handoffs=[DeployedAgent(name="specialist")])

FRONT = {it.name: it for it in (chief, clerk, closer, director, manager, reception, talker)}
BACK = {it.name: it for it in (expert, specialist)}
