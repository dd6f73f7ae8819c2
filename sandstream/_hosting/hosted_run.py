"""The objects behind one run in this process: agents, context, settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandstream_bus.wire.specs import RunOptions

from sandstream._surface.agent_graph import Reach
from sandstream._wire.compile import tools_of
from sandstream.agent import Agent, Tool
from sandstream.error_handlers import RunErrorHandlers
from sandstream.exceptions import UserError
from sandstream.memory.session import Session
from sandstream.run_config import RunConfig
from sandstream.run_context import RunContextWrapper

if TYPE_CHECKING:
    from sandstream_actors.run.state_cache import States
    from sandstream_bus.bus import Bus
    from sandstream_bus.wire.subjects import RunId

    from sandstream._hosting.run_tracing import RunTracing
    from sandstream._hosting.run_view import RunView
    from sandstream.mcp import MCPServer
    from sandstream.sandbox.bound_agent import BoundAgent


@dataclass(frozen=True)
class Host:
    """The tool host of a run: its bus, and how it finds the objects of other runs."""

    bus: Bus
    find_run: Callable[[RunId, States], Awaitable[HostedRun]]


@dataclass
class HostedRun:
    """The objects behind one run in this process."""

    agents: dict[str, Agent[Any]]
    """The agents as the user made them; results and contexts show these."""
    context: RunContextWrapper[Any]
    config: RunConfig
    error_handlers: RunErrorHandlers = field(default_factory=lambda: RunErrorHandlers())
    values: dict[str, Any] = field(default_factory=dict)
    """Return values of tools, by call, while the run is in this process."""
    exceptions: dict[str, BaseException] = field(default_factory=dict)
    """What user code raised, by run and call: a caller in this process gets the original."""

    working: dict[str, Agent[Any]] = field(default_factory=dict)
    """Agents that differ in this run, because they have the tools of their sandbox."""
    found: Reach | None = None
    """The agents that the run can reach; None if only ``agents`` is known."""
    hooks: Any | None = None
    """The run's own ``RunHooks``."""
    session: Session | None = None
    """The user's session that stores the conversation."""
    guardrails: dict[str, list[Any]] = field(default_factory=dict)
    """Results of guardrails, by call, while the run is in this process."""
    listed: dict[str, list[Tool]] = field(default_factory=dict)
    """Tools of MCP servers from the latest listing, by the agent's key."""
    bound: dict[str, BoundAgent] = field(default_factory=dict)
    """The sandbox agents of the run."""
    connect: Callable[[Sequence[MCPServer]], Awaitable[None]] | None = None
    """Connects MCP servers; None if their owner connects them."""
    host: Host | None = None
    """None while the run has no tool host."""
    options: RunOptions = field(default_factory=RunOptions)
    """The run's settings from its log."""
    tracing: RunTracing | None = None
    """Reports the run to trace processors, if its caller is in this process."""

    def working_agent(self, name: str) -> Agent[Any]:
        """The agent whose tools and instructions apply."""
        return self.working.get(name) or self.agent(name)

    def agent(self, name: str) -> Agent[Any]:
        found = self.agents.get(name)
        if found is None:
            offered = ", ".join(map(repr, self.agents)) or "none"
            raise UserError(f"this worker does not offer agent {name!r} (it offers {offered})")
        return found

    def tools(self, key: str) -> list[Tool]:
        """The agent's tools, those of its MCP servers first."""
        return [*self.listed.get(key, []), *tools_of(self.working_agent(key), self.config)]

    def tool(self, key: str, name: str) -> Tool | None:
        """A tool of an agent; the agent's own tools take precedence over listed ones."""
        return next((tool for tool in reversed(self.tools(key)) if tool.name == name), None)

    def view(self) -> RunView:
        """A reader of the run's log, with this process's objects."""
        from sandstream._hosting.run_view import RunView

        return RunView(self)
