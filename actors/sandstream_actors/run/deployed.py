"""Replaces the names of deployed agents by their registrations when a run starts.

A run then contains all of its agents from its first event on; a later deployment does not change
it. Agents of different workers may have the same name: each gets its own key in the run.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

import msgspec
from sandstream_bus.errors import BusError
from sandstream_bus.logs.agents import AgentRegistry
from sandstream_bus.wire.messages import AgentRegistered
from sandstream_bus.wire.specs import AgentSpec, ChildGraph, GraphSpec, HandoffSpec, ToolSpec


class UnknownAgent(BusError):
    """A graph names a deployed agent that no worker offers."""

    code = "unknown_agent"


async def resolved(graph: GraphSpec, registry: AgentRegistry) -> GraphSpec:
    """The graph with every remote agent filled in, and the agents that these can reach."""
    filling = _Filling(registry, dict(graph.children))
    agents = await filling.circle(graph.agents)
    done: set[str] = set()
    while len(done) < len(filling.children):
        for key in [key for key in filling.children if key not in done]:
            done.add(key)
            child = filling.children[key]
            own = await filling.circle(child.agents)
            filling.children[key] = msgspec.structs.replace(child, agents=own)
    return msgspec.structs.replace(graph, agents=agents, children=filling.children)


def free_key(name: str, taken: Container[str]) -> str:
    """The name, numbered if it is taken."""
    key, number = name, 1
    while key in taken:
        number += 1
        key = f"{name}#{number}"
    return key


@dataclass
class _Filling:
    """Fills in one graph. The children of a registration are copied once."""

    registry: AgentRegistry
    children: dict[str, ChildGraph]
    _found: dict[str, AgentRegistered] = field(default_factory=dict)
    _child_keys: dict[str, dict[str, str]] = field(default_factory=dict)
    """By registration: the keys of its children there, and here."""

    async def circle(self, given: Mapping[str, AgentSpec]) -> dict[str, AgentSpec]:
        """Agents that can hand off to each other, including deployed ones."""
        agents = dict(given)
        places: dict[str, str] = {}
        """Where the first agent of a registration is."""
        while True:
            remote = next((key for key, agent in agents.items() if agent.remote), None)
            if remote is None:
                return agents
            name = agents[remote].name
            found = await self._find(name)
            places[name] = remote
            keys = self._keys(found, remote, agents, places)
            children = self._take_children(name, found)
            for there, agent in found.graph.agents.items():
                here = keys[there]
                if not agent.remote:
                    agents[here] = _renamed(agent, found, keys, children, name, there)
                elif here not in agents:
                    agents[here] = agent

    def _keys(
        self,
        found: AgentRegistered,
        remote: str,
        agents: Mapping[str, AgentSpec],
        places: Mapping[str, str],
    ) -> dict[str, str]:
        """The keys of a registration's agents in this circle."""
        taken = set(agents)
        keys: dict[str, str] = {}
        for there, agent in found.graph.agents.items():
            if there == found.graph.start:
                keys[there] = remote
            elif agent.remote and agent.name in places:
                keys[there] = places[agent.name]
            else:
                keys[there] = free_key(there, taken)
                taken.add(keys[there])
        return keys

    def _take_children(self, name: str, found: AgentRegistered) -> dict[str, str]:
        known = self._child_keys.get(name)
        if known is not None:
            return known
        keys: dict[str, str] = {}
        self._child_keys[name] = keys
        for there in found.graph.children:
            keys[there] = free_key(there, {*self.children, *keys.values()})
        for there, child in found.graph.children.items():
            own = {key: _renamed(it, found, {}, keys) for key, it in child.agents.items()}
            self.children[keys[there]] = ChildGraph(start=child.start, agents=own)
        return keys

    async def _find(self, name: str) -> AgentRegistered:
        if name not in self._found:
            found = await self.registry.find(name)
            if found is None:
                known = ", ".join(await self.registry.names()) or "none"
                raise UnknownAgent(
                    f"agent {name!r} is needed by this run, but no worker offers it (known: "
                    f"{known}). Start one: sandstream worker my_app.py"
                )
            self._found[name] = found
        return self._found[name]


def _renamed(
    agent: AgentSpec,
    found: AgentRegistered,
    keys: Mapping[str, str],
    children: Mapping[str, str],
    deployed: str = "",
    deployed_key: str = "",
) -> AgentSpec:
    """An agent of a registration as the run contains it."""
    if agent.remote:
        return agent
    return msgspec.structs.replace(
        agent,
        pool=agent.pool or found.pool,
        handoffs=[_handoff(it, keys) for it in agent.handoffs],
        tools=[_tool(it, children) for it in agent.tools],
        deployed=deployed,
        deployed_key=deployed_key,
    )


def _handoff(handoff: HandoffSpec, keys: Mapping[str, str]) -> HandoffSpec:
    return msgspec.structs.replace(handoff, agent=keys.get(handoff.agent, handoff.agent))


def _tool(tool: ToolSpec, children: Mapping[str, str]) -> ToolSpec:
    if tool.child is None:
        return tool
    child = msgspec.structs.replace(
        tool.child, graph=children.get(tool.child.graph, tool.child.graph)
    )
    return msgspec.structs.replace(tool, child=child)
