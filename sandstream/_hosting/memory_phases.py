"""The models of memory phases, if they are the user's objects. A phase's run asks them in the
process of the run that is remembered, even after that run's caller got its result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.memory_specs import MemoryPart, scope_of
from sandstream_bus.wire.specs import AgentSpec, OutputSpec, ToolSpec

from sandstream._hosting.hosted_run import HostedRun
from sandstream.agent import Agent, Tool
from sandstream.agent_output import AgentOutputSchemaBase
from sandstream.custom_tool import CustomTool
from sandstream.exceptions import UserError
from sandstream.model_settings import ModelSettings
from sandstream.models.interface import Model, ModelProvider
from sandstream.run_config import RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.tool import FunctionTool

if TYPE_CHECKING:
    from sandstream.sandbox._memory.config import MemoryGenerateConfig
    from sandstream.sandbox.bound_agent import BoundAgent

_KEPT_RUNS = 4096


@dataclass(frozen=True)
class PhaseModels:
    """The models of a memory's phases."""

    config: MemoryGenerateConfig
    provider: ModelProvider | None

    def of(self, step: str) -> tuple[str | Model, ModelSettings]:
        one = step == "extract"
        model = self.config.phase_one_model if one else self.config.phase_two_model
        settings = (
            self.config.phase_one_model_settings if one else self.config.phase_two_model_settings
        )
        return model, settings or ModelSettings()


ByScope = Mapping[str, PhaseModels]


def phase_models(bound: Mapping[str, BoundAgent]) -> dict[str, PhaseModels]:
    """The memory models of a run's agents that can only be asked in this process, by scope."""
    found: dict[str, PhaseModels] = {}
    for agent in bound.values():
        use, memory = agent.memory_use, agent.memory
        if use is None or memory is None or memory.generate is None:
            continue
        if use.phase_one.hosted or use.phase_two.hosted:
            scope = scope_of(use, agent.session.bus_name)
            found[scope] = PhaseModels(memory.generate, agent.model_provider)
    return found


class KeptModels:
    """Keeps the models of ended runs for their memories, and nothing else of them."""

    def __init__(self) -> None:
        self._by_run: OrderedDict[str, ByScope] = OrderedDict()

    def keep(self, run: str, bound: Mapping[str, BoundAgent]) -> None:
        models = phase_models(bound)
        if not models:
            return
        self._by_run[run] = models
        self._by_run.move_to_end(run)
        while len(self._by_run) > _KEPT_RUNS:
            self._by_run.popitem(last=False)

    def get(self, run: str) -> ByScope:
        return self._by_run.get(run, {})


def phase_of(state: RunState) -> MemoryPart | None:
    """The memory phase that a run is, or None."""
    part = state.options.memory
    return part if part is not None and part.step != "rollout" else None


def hosted_phase(state: RunState, part: MemoryPart, models: ByScope) -> HostedRun:
    """The objects of a phase's run. Its tools run in the sandbox and are never called here."""
    found = models.get(part.scope)
    agents: dict[str, Agent[Any]] = {}
    for key, spec in state.agents.items():
        model, settings = found.of(part.step) if found else (_Gone(part), ModelSettings())
        agents[key] = Agent(
            name=spec.name,
            instructions=spec.instructions,
            model=model,
            model_settings=settings,
            tools=[_tool(tool) for tool in spec.tools],
            output_type=_output(spec),
        )
    config = RunConfig(model_provider=found.provider if found else None)
    return HostedRun(agents, RunContextWrapper(context=None), config, options=state.options)


def _tool(spec: ToolSpec) -> Tool:
    definition = msgspec.json.decode(spec.definition)
    if definition.get("type") == "custom":
        return CustomTool(
            name=spec.name,
            description=definition.get("description", ""),
            on_invoke_tool=_elsewhere,
            format=definition.get("format"),
        )
    return FunctionTool(
        name=spec.name,
        description=definition.get("description", ""),
        params_json_schema=definition.get("parameters", {}),
        on_invoke_tool=_elsewhere,
        strict_json_schema=definition.get("strict", False),
    )


async def _elsewhere(*_: Any) -> str:
    raise UserError("the tools of a memory's phase are those of its sandbox")


def _output(spec: AgentSpec) -> AgentOutputSchemaBase | None:
    return _Output(spec.output) if spec.output is not None else None


class _Output(AgentOutputSchemaBase):
    """An output schema that came over the bus."""

    def __init__(self, spec: OutputSpec) -> None:
        self._spec = spec

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return self._spec.name

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = msgspec.json.decode(self._spec.schema)
        return schema

    def is_strict_json_schema(self) -> bool:
        return self._spec.strict

    def validate_json(self, json_str: str) -> Any:
        return msgspec.json.decode(json_str)


class _Gone(Model):
    """Stands in for a model that this process no longer has."""

    def __init__(self, part: MemoryPart) -> None:
        self._error = UserError(
            f"the models of memory {part.scope!r} came with run {part.origin}, which this process "
            "has forgotten; the next run with that memory brings them again"
        )

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        raise self._error

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise self._error
        yield
