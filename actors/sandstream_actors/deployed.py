"""Agents that other workers offer, put in the place of their names when a run starts.

A run then knows all of its agents from its first event on; a later deployment does not change it.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.errors import BusError
from sandstream_bus.registry import AgentRegistry
from sandstream_bus.specs import AgentSpec, ChildGraph, GraphSpec


class UnknownAgent(BusError):
    """A graph names a deployed agent that nobody offers."""

    code = "unknown_agent"


async def resolved(graph: GraphSpec, registry: AgentRegistry) -> GraphSpec:
    """The graph with every remote agent filled in, and what these can reach."""
    agents = dict(graph.agents)
    children = dict(graph.children)
    await _fill(agents, children, registry)
    done: set[str] = set()
    while len(done) < len(children):
        for key in [key for key in children if key not in done]:
            done.add(key)
            own = dict(children[key].agents)
            await _fill(own, children, registry)
            children[key] = ChildGraph(start=children[key].start, agents=own)
    return msgspec.structs.replace(graph, agents=agents, children=children)


async def _fill(
    agents: dict[str, AgentSpec], children: dict[str, ChildGraph], registry: AgentRegistry
) -> None:
    while True:
        remote = next((key for key, agent in agents.items() if agent.remote), None)
        if remote is None:
            return
        name = agents[remote].name
        found = await registry.find(name)
        if found is None:
            known = ", ".join(await registry.names()) or "none"
            raise UnknownAgent(
                f"agent {name!r} is needed by this run, but no worker offers it (known: {known}). "
                "Start one: sandstream worker my_app.py"
            )
        for key, agent in found.graph.agents.items():
            placed = msgspec.structs.replace(agent, pool=agent.pool or found.pool)
            place = remote if key == found.graph.start else key
            if place not in agents or agents[place].remote:
                agents[place] = placed
        for key, child in found.graph.children.items():
            children.setdefault(key, child)
