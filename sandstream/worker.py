"""Workers: register the agents of a module and host their callables."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import logging
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
from sandstream_actors.run.state_cache import States
from sandstream_actors.tool_host.actor import ToolHost
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import UndecodableMessage
from sandstream_bus.nats.connection import PUBLISH_BUDGET_S
from sandstream_bus.nats.log_guard import LogChange
from sandstream_bus.wire.messages import AgentRegistered, RunStarted
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_bus.wire.subjects import RunId, check_token, token_of
from sandstream_providers import registry

from sandstream._hosting.hosted_run import Host, HostedRun
from sandstream._hosting.memory_phases import hosted_phase, phase_models, phase_of
from sandstream._hosting.models import HostedModels
from sandstream._hosting.user_code import UserCode
from sandstream._run.plan import RunPlan, bound_agents, hosted_child
from sandstream._surface.agent_graph import Circle, Reach
from sandstream._wire.options import compile_options
from sandstream.agent import Agent
from sandstream.exceptions import UserError
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.tracing.setup import reporter_here

if TYPE_CHECKING:
    from sandstream.mcp.hosted_servers import ConnectedServers
    from sandstream.sandbox.bound_agent import BoundAgent
    from sandstream.sandbox.sandbox_agent import SandboxAgent

logger = logging.getLogger(__name__)

_KEPT_RUNS = 1000


def load_module(path: str) -> ModuleType:
    """Import a file under a module name of its own. Errors in the file are not caught."""
    file = Path(path)
    if path and file.is_dir():
        raise UserError(f"{path!r} is a directory; give the path of a Python file with agents")
    if not file.is_file():
        raise UserError(f"there is no file {path!r}; give the path of a Python file with agents")
    name = f"sandstream_app_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{path!r} is not a Python file: give one whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def agents_of(module: ModuleType) -> dict[str, Agent[Any]]:
    """All agents that a module defines at its top level, by name."""
    found: dict[str, Agent[Any]] = {}
    for value in vars(module).values():
        for agent in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(agent, Agent):
                continue
            if found.get(agent.name, agent) is not agent:
                raise UserError(f"{module.__file__}: two agents are named {agent.name!r}")
            found[agent.name] = agent
    if not found:
        raise UserError(
            f"{module.__file__} defines no agent: assign an Agent to a name at its top level"
        )
    return found


class AgentWorker:
    """One replica that hosts the agents of a module. All replicas of a module share a pool.

    Args:
        bus: The bus. The caller closes it.
        agents: The agents by their names.
        pool: The tool pool, by which replicas share the work.
        config: Settings for all runs of these agents.
        harness_pool: The harness pool that takes the turns.
        max_in_flight: How many calls may run at once.

    Example:
        worker = AgentWorker(bus, {"assistant": assistant}, pool="support")
        await worker.start()
        await stopped.wait()
        await worker.stop()
    """

    def __init__(
        self,
        bus: Bus,
        agents: dict[str, Agent[Any]],
        *,
        pool: str,
        config: RunConfig | None = None,
        harness_pool: str = "main",
        max_in_flight: int = 64,
    ) -> None:
        self._bus = bus
        self.agents = agents
        self.pool = token_of(pool)
        self._config = config or RunConfig()
        self._harness_pool = check_token(harness_pool, "the harness pool")
        self._plans = {
            name: RunPlan(agent, self._config, "", bind=self._bind)
            for name, agent in agents.items()
        }
        self._everyone: dict[str, Agent[Any]] = {}
        """All agents that calls can refer to, by key."""
        self._children: dict[str, Circle] = {}
        """The circles of all agents that they use as tools."""
        for name, plan in self._plans.items():
            self._everyone = {**plan.found.own.agents, **self._everyone}
            self._children |= {f"{name}/{key}": it for key, it in plan.found.children.items()}
        self._runs: OrderedDict[RunId, HostedRun] = OrderedDict()
        self._hosted_models = HostedModels(bus)
        user_code = UserCode(self._find_run, self._hosted_models.ask)
        self._host = ToolHost(bus, user_code, pool=self.pool, max_in_flight=max_in_flight)
        self._again: asyncio.Future[None] | None = None
        self._forget_change: Callable[[], None] = lambda: None
        self._servers = _servers_of([plan.found for plan in self._plans.values()])

    async def start(self) -> None:
        """Start to host the agents' code, then register them.

        No call arrives before the host listens. If an MCP server does not connect, it is tried
        again on its next use.
        """
        registrations = [
            AgentRegistered(
                graph=await self._plans[agent.name].graph(self.pool, one_run=False),
                options=compile_options(self._config, max_turns=DEFAULT_MAX_TURNS),
                pool=self._harness_pool,
            )
            for agent in self.agents.values()
        ]
        if self._servers is not None:
            await self._servers.start()
        reporter_here().attach(self._bus)
        await self._host.start()
        await self._register(registrations)
        self._forget_change = self._bus.guard.on_change(partial(self._on_lost_log, registrations))

    async def _register(
        self, registrations: list[AgentRegistered], budget_s: float | None = PUBLISH_BUDGET_S
    ) -> None:
        instance = uuid.uuid4().hex
        crashpoint("worker.before_register")
        for registration in registrations:
            await self._bus.agents.register(registration, instance=instance, budget_s=budget_s)
        crashpoint("worker.after_register")

    async def _on_lost_log(self, registrations: list[AgentRegistered], _: LogChange) -> None:
        """Register the agents again, and forget lost runs: a new run may have the same id."""
        self._runs.clear()
        self._again = asyncio.ensure_future(self._register_again(registrations))

    async def _register_again(self, registrations: list[AgentRegistered]) -> None:
        await self._register(registrations, budget_s=None)
        logger.warning("agents are registered again: %s", ", ".join(sorted(self.agents)))

    def _bind(self, agent: SandboxAgent[Any], config: RunConfig, run: str) -> BoundAgent:
        """Bind a sandbox agent to a run; any node may take its sandbox."""
        from sandstream.sandbox.bound_agent import BoundAgent
        from sandstream.sandbox.config import SandboxRunConfig
        from sandstream.sandbox.session.link import BusLink

        if config.sandbox is None:
            sandbox = SandboxRunConfig(client=registry.new_client(DEFAULT_PROVIDER))
            config = dataclasses.replace(config, sandbox=sandbox)
        assert config.sandbox is not None
        client: Any = config.sandbox.client
        provider = client.link.provider if client is not None else DEFAULT_PROVIDER
        return BoundAgent(agent, config, run, BusLink(self._bus, provider))

    async def stop(self) -> None:
        """Stop to take calls and disconnect the MCP servers. The agents stay registered."""
        self._forget_change()
        if self._again is not None:
            self._again.cancel()
        await self._host.stop()
        await reporter_here().detach(self._bus)
        await self._hosted_models.aclose()
        if self._servers is not None:
            await self._servers.stop()

    async def _find_run(self, run: RunId, states: States) -> HostedRun:
        hosted = self._runs.get(run)
        if hosted is None:
            state = await states.load(run)
            if state.started is None:
                raise UndecodableMessage(f"the beginning of the run {run} cannot be read")
            phase = phase_of(state)
            if phase is not None:
                origin = await self._find_run(RunId(phase.origin), states)
                return hosted_phase(state, phase, phase_models(origin.bound))
            hosted = await self._host_run(run, state.started, states)
            self._runs[run] = hosted
            while len(self._runs) > _KEPT_RUNS:
                self._runs.popitem(last=False)
        self._runs.move_to_end(run)
        return hosted

    async def _host_run(self, run: RunId, started: RunStarted, states: States) -> HostedRun:
        """The objects of a run: from its parent's tool if the parent is hosted here, else from the
        agents that this worker registered.
        """
        agents = self._deployed_in(started)
        parent = started.parent
        first = started.graph.agents.get(started.graph.start)
        is_ours = first is not None and first.host == self.pool and not first.deployed
        if is_ours or not agents:
            if parent is not None:
                above = (await states.load(RunId(parent.run))).agents.get(parent.agent)
                if above is not None and above.host == self.pool:
                    parent_run = await self._find_run(RunId(parent.run), states)
                    child = hosted_child(parent_run, parent, run, self._bind)
                    child.agents = {**agents, **child.agents}
                    child.options = started.options
                    return child
            plan = self._plans.get(started.graph.start)
            # The plan has only stand-ins for deployed agents. Agents that this worker registered
            # replace them.
            agents = {**(plan.found.own.agents if plan else self._everyone), **agents}
        context = msgspec.json.decode(started.context) if started.context else None
        own = Circle(started.graph.start, agents, self._config)
        bound = bound_agents(own, run, self._bind)
        self._move_to_sessions(bound, started)
        return HostedRun(
            agents,
            RunContextWrapper(context=context),
            self._config,
            working={key: it.working for key, it in bound.items()},
            found=Reach(own, self._children),
            bound=bound,
            connect=self._servers.ensure if self._servers else None,
            host=Host(self._bus, self._find_run),
            options=started.options,
        )

    def _move_to_sessions(self, bound: dict[str, BoundAgent], started: RunStarted) -> None:
        """The sandbox of a durable session has a name of its own, and may be at any provider."""
        from sandstream.sandbox.session.link import BusLink

        for key, it in bound.items():
            agent = started.graph.agents.get(key)
            use = agent.sandbox if agent is not None else None
            if use is not None and use.id and use.spec.session:
                it.move_to(use.id, BusLink(self._bus, use.spec.provider))

    def _deployed_in(self, started: RunStarted) -> dict[str, Agent[Any]]:
        """The agents of another program's run that we registered, by their keys in the run."""
        return {
            key: self._plans[agent.deployed].found.own.agents[agent.deployed_key]
            for key, agent in started.graph.agents.items()
            if agent.host == self.pool and agent.deployed in self._plans
        }


def _servers_of(reached: list[Reach]) -> ConnectedServers | None:
    """The MCP servers of all agents, including those of child runs."""
    circles = [circle for it in reached for circle in (it.own, *it.children.values())]
    agents = [agent for circle in circles for agent in circle.agents.values()]
    servers = dict.fromkeys(server for agent in agents for server in agent.mcp_servers)
    if not servers:
        return None
    from sandstream.mcp.hosted_servers import ConnectedServers

    return ConnectedServers(servers)
