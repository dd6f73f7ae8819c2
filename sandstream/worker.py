"""Workers: offer the agents of a module and host their callables."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import sys
import uuid
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
from sandstream_actors.state_cache import StateCache
from sandstream_actors.tools import ToolHost
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.messages import AgentRegistered, RunStarted
from sandstream_bus.subjects import RunId, token_of

from sandstream.agent import Agent
from sandstream.exceptions import UserError
from sandstream.hosted_models import HostedModels
from sandstream.hosting.hosted_run import Host, HostedRun
from sandstream.hosting.memory_phases import hosted_phase, phase_models, phase_of
from sandstream.hosting.user_code import UserCode
from sandstream.reach import Circle, Reach
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.run_options import compile_options
from sandstream.run_plan import RunPlan, bound_agents, hosted_child
from sandstream.tracing.setup import reporter_here

if TYPE_CHECKING:
    from sandstream.mcp.hosting import ConnectedServers
    from sandstream.sandbox.binding import BoundAgent
    from sandstream.sandbox.sandbox_agent import SandboxAgent

logger = logging.getLogger(__name__)

_KEPT_RUNS = 1000


def load_module(path: str) -> ModuleType:
    """Import a file as a module of its own name. Errors in it are the user's and say where."""
    file = Path(path)
    if not file.is_file():
        raise UserError(f"there is no file {path}; give the path of a Python file with agents")
    name = f"sandstream_app_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
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
    """One replica that hosts the agents of a module. All replicas of a module share a pool."""

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
        self._harness_pool = harness_pool
        self._plans = {
            name: RunPlan(agent, self._config, "", bind=self._bind)
            for name, agent in agents.items()
        }
        self._everyone: dict[str, Agent[Any]] = {}
        """All agents that calls can be about, by key."""
        self._children: dict[str, Circle] = {}
        """What all of them call as tools."""
        for name, plan in self._plans.items():
            self._everyone = {**plan.found.own.agents, **self._everyone}
            self._children |= {f"{name}/{key}": it for key, it in plan.found.children.items()}
        self._runs: OrderedDict[RunId, HostedRun] = OrderedDict()
        self._hosted_models = HostedModels(bus)
        user_code = UserCode(self._find_run, self._hosted_models.ask)
        self._host = ToolHost(bus, user_code, pool=self.pool, max_in_flight=max_in_flight)
        self._servers = _servers_of([plan.found for plan in self._plans.values()])

    async def start(self) -> None:
        """Host first, then offer, so that no call comes before somebody listens."""
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
        instance = uuid.uuid4().hex
        crashpoint("worker.before_register")
        for registration in registrations:
            await self._bus.agents.register(registration, instance=instance)
        crashpoint("worker.after_register")

    def _bind(self, agent: SandboxAgent[Any], config: RunConfig, run: str) -> BoundAgent:
        """The form that a sandbox agent has in a run: its sandbox is on whichever node takes it."""
        from sandstream.sandbox.binding import BoundAgent
        from sandstream.sandbox.config import SandboxRunConfig
        from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
        from sandstream.sandbox.session.link import BusLink

        if config.sandbox is None:
            sandbox = SandboxRunConfig(client=UnixLocalSandboxClient())
            config = dataclasses.replace(config, sandbox=sandbox)
        assert config.sandbox is not None
        client: Any = config.sandbox.client
        provider = client.link.provider if client is not None else "local"
        return BoundAgent(agent, config, run, BusLink(self._bus, provider))

    async def stop(self) -> None:
        await self._host.stop()
        await reporter_here().detach(self._bus)
        await self._hosted_models.aclose()
        if self._servers is not None:
            await self._servers.stop()

    async def _find_run(self, run: RunId, states: StateCache) -> HostedRun:
        hosted = self._runs.get(run)
        if hosted is None:
            state = await states.load(run)
            assert state.started is not None
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

    async def _host_run(self, run: RunId, started: RunStarted, states: StateCache) -> HostedRun:
        """The objects of a run: of its parent's tool if that is here, else of the agents that were
        deployed from here.
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
            # others may hand back to agents that were deployed from here
            agents = {**agents, **(plan.found.own.agents if plan else self._everyone)}
        context = msgspec.json.decode(started.context) if started.context else None
        own = Circle(started.graph.start, agents, self._config)
        bound = bound_agents(own, run, self._bind)
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

    def _deployed_in(self, started: RunStarted) -> dict[str, Agent[Any]]:
        """The agents of a run of somebody else's that came from our registrations, by their keys
        in the run.
        """
        return {
            key: self._plans[agent.deployed].found.own.agents[agent.deployed_key]
            for key, agent in started.graph.agents.items()
            if agent.host == self.pool and agent.deployed in self._plans
        }


def _servers_of(reached: list[Reach]) -> ConnectedServers | None:
    """The MCP servers of all agents, those of child runs included."""
    circles = [circle for it in reached for circle in (it.own, *it.children.values())]
    agents = [agent for circle in circles for agent in circle.agents.values()]
    servers = dict.fromkeys(server for agent in agents for server in agent.mcp_servers)
    if not servers:
        return None
    from sandstream.mcp.hosting import ConnectedServers

    return ConnectedServers(servers)
