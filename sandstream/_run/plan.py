"""A run before it starts: its reachable agents, with sandbox agents bound. Does all checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec
from sandstream_bus.wire.messages import ParentLink
from sandstream_bus.wire.sandboxes import SandboxUse
from sandstream_bus.wire.specs import GraphSpec

from sandstream._hosting.hosted_run import HostedRun
from sandstream._surface.agent_graph import Circle, Reach, reach
from sandstream._wire.compile import Workplaces, compile_graph, hosted_by
from sandstream.agent import Agent
from sandstream.agent_tool import AgentTool
from sandstream.exceptions import UserError
from sandstream.run_config import RunConfig

if TYPE_CHECKING:
    from sandstream.sandbox.bound_agent import BoundAgent
    from sandstream.sandbox.sandbox_agent import SandboxAgent

Binder = Callable[["SandboxAgent[Any]", RunConfig, str], "BoundAgent"]
"""Binds a sandbox agent to a run."""


class RunPlan:
    """The agents of one run, or of all runs of a deployed agent (``run`` is empty then)."""

    def __init__(
        self,
        agent: Agent[Any],
        config: RunConfig,
        run: str,
        *,
        hooks: Any | None = None,
        bind: Binder | None = None,
    ) -> None:
        self.agent = agent
        self.config = config
        self._hooks = hooks
        self._bind = bind or bind_here
        self.found = reach(agent, config)
        self.bound = bound_agents(self.found.own, run, self._bind)
        self._child_bound = {
            key: bound_agents(circle, "", self._bind) for key, circle in self.found.children.items()
        }
        for bound in (self.bound, *self._child_bound.values()):
            if bound:
                _check_memories(bound)
        self._compiled = self._compile()  # checks all, before any effect

    @property
    def start(self) -> str:
        return self.found.own.start

    @property
    def working(self) -> dict[str, Agent[Any]]:
        return {key: bound.working for key, bound in self.bound.items()}

    @property
    def has_child_sandboxes(self) -> bool:
        """Does an agent as a tool work in a sandbox?"""
        return any(self._child_bound.values())

    def _compile(self) -> GraphSpec:
        return compile_graph(
            self.agent,
            self.config,
            host="",
            found=self.found,
            hooks=self._hooks,
            places=_places(self.bound),
            child_places={key: _places(bound) for key, bound in self._child_bound.items()},
        )

    async def graph(self, host: str, *, one_run: bool = True) -> GraphSpec:
        """The graph with all sandboxes described; uploads local files to the object store.

        ``one_run``: the sandboxes belong to this run; otherwise each run gets its own.
        """
        graph = hosted_by(self._compiled, host)
        agents = dict(graph.agents)
        for key, bound in self.bound.items():
            use = await bound.use()
            agents[key] = msgspec.structs.replace(
                agents[key], sandbox=use if one_run else _for_each_run(use)
            )
        children = dict(graph.children)
        for child, bounds in self._child_bound.items():
            own = dict(children[child].agents)
            for key, bound in bounds.items():
                use = _for_each_run(await bound.use())
                own[key] = msgspec.structs.replace(own[key], sandbox=use)
            children[child] = msgspec.structs.replace(children[child], agents=own)
        return msgspec.structs.replace(graph, agents=agents, children=children)


def bound_agents(circle: Circle, run: str, bind: Binder) -> dict[str, BoundAgent]:
    """The sandbox agents of a circle, bound to a run."""
    return {
        key: bind(cast("SandboxAgent[Any]", agent), circle.config, run)
        for key, agent in circle.agents.items()
        if hasattr(agent, "capabilities")
    }


def bind_here(agent: SandboxAgent[Any], config: RunConfig, run: str) -> BoundAgent:
    from sandstream.sandbox.bound_agent import BoundAgent

    return BoundAgent(agent, config, run)


def hosted_child(parent: HostedRun, link: ParentLink, run: str, bind: Binder) -> HostedRun:
    """The objects of a child run. It shares its parent's context and has its tool's settings."""
    tool = parent.tool(link.agent, link.tool)
    if not isinstance(tool, AgentTool) or parent.found is None:
        raise UserError(f"agent {link.agent!r} has no agent tool {link.tool!r} here")
    circle = parent.found.children[parent.found.child_key(tool, parent.config)]
    bound = bound_agents(circle, run, bind)
    return HostedRun(
        circle.agents,
        tool.context_of(parent.context, link.call_id, link.arguments, parent.agent(link.agent)),
        circle.config,
        exceptions=parent.exceptions,
        working={key: it.working for key, it in bound.items()},
        found=Reach(circle, parent.found.children),
        hooks=tool.run_hooks,
        session=tool.session,
        bound=bound,
        connect=parent.connect,
        host=parent.host,
    )


def _places(bound: dict[str, BoundAgent]) -> Workplaces:
    return Workplaces(
        {key: it.working for key, it in bound.items()},
        {key: SandboxUse() for key in bound},
        {key: it.memory_use for key, it in bound.items() if it.memory_use is not None},
    )


def _check_memories(bound: dict[str, BoundAgent]) -> None:
    from sandstream.sandbox._memory.conflicts import check_memories

    check_memories(bound.values())


def _for_each_run(use: SandboxUse) -> SandboxUse:
    return msgspec.structs.replace(use, id="") if use.owned else use
