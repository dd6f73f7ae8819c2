"""Finds all agents that a run can reach from its first agent: by handoffs and by agents as tools.

Each agent's key is its name. If different agents share a name, the later ones get a number, in
the order in which they are found, which is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sandstream.agent import Agent
from sandstream.agent_tool import AgentTool
from sandstream.exceptions import UserError
from sandstream.handoffs.handoff import Handoff
from sandstream.run_config import RunConfig


@dataclass
class Circle:
    """Agents that can hand off to each other, and the settings they run with."""

    start: str
    agents: dict[str, Agent[Any]]
    config: RunConfig
    tool: AgentTool | None = None
    """The agent tool that starts the circle; None for the run itself."""

    def key_of(self, agent: Agent[Any]) -> str:
        for key, known in self.agents.items():
            if known is agent:
                return key
        raise UserError(f"agent {agent.name!r} is not part of this run")


@dataclass
class Reach:
    """A run's own circle, and the circles of agents that are used as tools, at any depth."""

    own: Circle
    children: dict[str, Circle] = field(default_factory=dict)

    def child_key(self, tool: AgentTool, config: RunConfig) -> str:
        """The key of an agent tool's circle."""
        wanted = tool.config_of(config)
        for key, circle in self.children.items():
            if circle.tool is tool and circle.config is wanted:
                return key
        raise UserError(f"the agent tool {tool.name!r} is not part of this run")


def reach(agent: Agent[Any], config: RunConfig) -> Reach:
    """Walk the graph of agents. Cycles are allowed."""
    if not isinstance(agent, Agent):
        raise TypeError(f"the starting agent must be an Agent, not {type(agent).__name__}")
    found = Reach(_circle(agent, config))
    todo = [found.own]
    while todo:
        circle = todo.pop(0)
        for tool in agent_tools(circle):
            wanted = tool.config_of(circle.config)
            known = found.children.values()
            if any(it.tool is tool and it.config is wanted for it in known):
                continue
            child = _circle(tool.agent, wanted, tool)
            found.children[free_key(tool.name, found.children)] = child
            todo.append(child)
    return found


def agent_tools(circle: Circle) -> Iterator[AgentTool]:
    for agent in circle.agents.values():
        for tool in agent.tools:
            if isinstance(tool, AgentTool) and tool.starts_runs:
                yield tool


def _circle(agent: Agent[Any], config: RunConfig, tool: AgentTool | None = None) -> Circle:
    agents: dict[str, Agent[Any]] = {}
    todo: list[Agent[Any]] = [agent]
    while todo:
        current = todo.pop(0)
        if any(known is current for known in agents.values()):
            continue
        agents[free_key(current.name, agents)] = current
        for item in current.handoffs:
            target = item.agent if isinstance(item, Handoff) else item
            if target is not None:
                todo.append(target)
    return Circle(agent.name, agents, config, tool)


def free_key(name: str, taken: dict[str, Any]) -> str:
    key, number = name, 1
    while key in taken:
        number += 1
        key = f"{name}#{number}"
    return key
