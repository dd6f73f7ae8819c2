"""The objects behind one run in this process: agents, context, settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandstream_bus.specs import RunOptions

from sandstream.agent import Agent, Tool
from sandstream.error_handlers import RunErrorHandlers
from sandstream.exceptions import UserError
from sandstream.graph import tools_of
from sandstream.memory.session import Session
from sandstream.reach import Reach
from sandstream.run_config import RunConfig
from sandstream.run_context import RunContextWrapper

if TYPE_CHECKING:
    from sandstream_actors.state_cache import StateCache
    from sandstream_bus.bus import Bus
    from sandstream_bus.subjects import RunId

    from sandstream.mcp import MCPServer
    from sandstream.run_view import RunView
    from sandstream.sandbox.binding import BoundAgent
    from sandstream.tracing.run_tracing import RunTracing


@dataclass(frozen=True)
class Host:
    """The tool host that has a run: its bus, and how it finds the objects of other runs."""

    bus: Bus
    find_run: Callable[[RunId, StateCache], Awaitable[HostedRun]]


@dataclass
class HostedRun:
    """The objects behind one run in this process."""

    agents: dict[str, Agent[Any]]
    """As the user made them: what results and contexts show."""
    context: RunContextWrapper[Any]
    config: RunConfig
    error_handlers: RunErrorHandlers = field(default_factory=lambda: RunErrorHandlers())
    values: dict[str, Any] = field(default_factory=dict)
    """Return values of tools, by call, while the run is in this process."""
    exceptions: dict[str, Exception] = field(default_factory=dict)
    """What user code raised, by message, so that a caller in this process gets the original."""

    working: dict[str, Agent[Any]] = field(default_factory=dict)
    """Agents as this run has them, where that is different: with the tools of their sandbox."""
    found: Reach | None = None
    """What the run can reach; None where only the agents are known."""
    hooks: Any | None = None
    """The run's own ``RunHooks``."""
    session: Session | None = None
    """The user's session that keeps the conversation."""
    guardrails: dict[str, list[Any]] = field(default_factory=dict)
    """Results of guardrails, by call, while the run is in this process."""
    listed: dict[str, list[Tool]] = field(default_factory=dict)
    """Tools of MCP servers as they were listed last, by the agent's key."""
    bound: dict[str, BoundAgent] = field(default_factory=dict)
    """The sandbox agents of the run."""
    connect: Callable[[Sequence[MCPServer]], Awaitable[None]] | None = None
    """Makes sure that MCP servers are connected; None: their owner does."""
    host: Host | None = None
    """None while no tool host has the run."""
    options: RunOptions = field(default_factory=RunOptions)
    """The run's settings as its log has them."""
    tracing: RunTracing | None = None
    """Who tells of the run, if its caller is in this process."""

    def working_agent(self, name: str) -> Agent[Any]:
        """The agent whose tools and instructions count."""
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
        """A tool of an agent; its own go before listed ones."""
        return next((tool for tool in reversed(self.tools(key)) if tool.name == name), None)

    def view(self) -> RunView:
        """A reader of the run's log, with this process's objects."""
        from sandstream.run_view import RunView

        return RunView(self)
