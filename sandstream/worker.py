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
from typing import TYPE_CHECKING, Any, cast

import msgspec
from sandstream_actors.state_cache import StateCache
from sandstream_actors.tools import ToolHost
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.messages import AgentRegistered
from sandstream_bus.specs import GraphSpec
from sandstream_bus.subjects import RunId, token_of

from sandstream.agent import Agent
from sandstream.exceptions import UserError
from sandstream.graph import compile_graph, compile_options
from sandstream.hosted_models import HostedModels
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.user_code import HostedRun, UserCode

if TYPE_CHECKING:
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
        self._runs: OrderedDict[RunId, HostedRun] = OrderedDict()
        self._hosted_models = HostedModels(bus)
        user_code = UserCode(self._find_run, self._hosted_models.ask)
        self._host = ToolHost(bus, user_code, pool=self.pool, max_in_flight=max_in_flight)

    async def start(self) -> None:
        """Host first, then offer, so that no call comes before somebody listens."""
        registrations = [
            AgentRegistered(
                graph=await self._graph_of(agent),
                options=compile_options(self._config, max_turns=DEFAULT_MAX_TURNS),
                pool=self._harness_pool,
            )
            for agent in self.agents.values()
        ]
        await self._host.start()
        instance = uuid.uuid4().hex
        crashpoint("worker.before_register")
        for registration in registrations:
            await self._bus.agents.register(registration, instance=instance)
        crashpoint("worker.after_register")

    async def _graph_of(self, agent: Agent[Any]) -> GraphSpec:
        bound = self._bind(agent, "")
        if bound is None:
            return compile_graph(agent, self._config, host=self.pool)
        use = await bound.use()
        # each run has a sandbox of its own, named after it
        use = msgspec.structs.replace(use, id=use.id if not use.owned else "")
        return compile_graph(bound.working, self._config, host=self.pool, sandbox=use)

    def _bind(self, agent: Agent[Any], run: str) -> BoundAgent | None:
        """The form that a sandbox agent has in a run; None for a plain agent."""
        if not hasattr(agent, "capabilities"):
            return None
        from sandstream.sandbox.binding import BoundAgent
        from sandstream.sandbox.config import SandboxRunConfig
        from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
        from sandstream.sandbox.session.link import BusLink

        config = self._config
        if config.sandbox is None:
            sandbox = SandboxRunConfig(client=UnixLocalSandboxClient())
            config = dataclasses.replace(config, sandbox=sandbox)
        assert config.sandbox is not None
        client: Any = config.sandbox.client
        provider = client.link.provider if client is not None else "local"
        link = BusLink(self._bus, provider)  # whichever node of the provider takes it
        return BoundAgent(cast("SandboxAgent[Any]", agent), config, run, link)

    async def stop(self) -> None:
        await self._host.stop()
        await self._hosted_models.aclose()

    async def _find_run(self, run: RunId, states: StateCache) -> HostedRun:
        hosted = self._runs.get(run)
        if hosted is None:
            state = await states.load(run)
            assert state.started is not None
            context = msgspec.json.decode(state.started.context) if state.started.context else None
            hosted = HostedRun(self.agents, RunContextWrapper(context=context), self._config)
            for name in state.started.graph.agents:
                bound = self._bind(self.agents[name], run) if name in self.agents else None
                if bound is not None:
                    hosted.working[name] = bound.working
            self._runs[run] = hosted
            while len(self._runs) > _KEPT_RUNS:
                self._runs.popitem(last=False)
        self._runs.move_to_end(run)
        return hosted
