"""The objects behind a phase's run: what its model is given, and what happens without one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.memory_specs import MemoryPart
from sandstream_bus.wire.specs import OutputSpec, ToolSpec
from support.scripted_log import RUN, begin, log, raw

from sandstream import ModelSettings, OpenAIResponsesModel, RunConfig, UserError
from sandstream._hosting.memory_phases import KeptModels, PhaseModels, hosted_phase, phase_of
from sandstream._run.plan import RunPlan
from sandstream._wire.compile import output_schema_of
from sandstream.custom_tool import CustomTool
from sandstream.sandbox import MemoryGenerateConfig, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Memory
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient

PATCH = {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"a": 1}}
RUNS = {
    "type": "function",
    "name": "exec_command",
    "description": "Runs.",
    "parameters": {"type": "object"},
    "strict": False,
}


def phase(step: Any = "merge", scope: str = "user") -> RunState:
    return RunState.of(
        RUN,
        log(
            begin(
                ToolSpec(name="exec_command", definition=raw(RUNS), sandbox=True),
                ToolSpec(name="apply_patch", definition=raw(PATCH), sandbox=True),
                options={"memory": MemoryPart(scope=scope, step=step, origin="r0")},
                output=OutputSpec(name="found", schema=raw({"type": "object"}), strict=True),
                instructions="Do it.",
            )
        ),
    )


def test_only_phases_are_phases() -> None:
    assert phase_of(phase("rollout")) is None
    assert phase_of(RunState.of(RUN, log(begin()))) is None
    part = phase_of(phase("extract"))
    assert part is not None
    assert part.origin == "r0"


def test_a_model_is_given_the_agent_as_the_bus_has_it() -> None:
    config = MemoryGenerateConfig(phase_two_model="big", phase_two_model_settings=None)
    state = phase()
    part = phase_of(state)
    assert part is not None
    hosted = hosted_phase(state, part, {"user": PhaseModels(config, None)})
    agent = hosted.agent("a")
    assert (agent.model, agent.instructions) == ("big", "Do it.")
    assert agent.model_settings == ModelSettings()
    run, patch = hosted.tools("a")
    assert (run.name, run.description) == ("exec_command", "Runs.")
    assert isinstance(patch, CustomTool)
    assert patch.tool_config == PATCH
    schema = output_schema_of(agent)
    assert schema is not None
    assert schema.json_schema() == {"type": "object"}
    assert schema.is_strict_json_schema()


def test_phase_one_has_a_model_of_its_own() -> None:
    config = MemoryGenerateConfig(phase_one_model="small")
    state = phase("extract")
    part = phase_of(state)
    assert part is not None
    hosted = hosted_phase(state, part, {"user": PhaseModels(config, None)})
    assert hosted.agent("a").model == "small"


def test_a_model_that_is_here_no_more_says_so() -> None:
    state = phase(scope="somebody else")
    part = phase_of(state)
    assert part is not None
    hosted = hosted_phase(state, part, {})
    model: Any = hosted.agent("a").model
    with pytest.raises(UserError, match="memory 'somebody else' came with run r0"):
        asyncio.run(model.get_response())


def test_only_models_that_are_objects_are_kept() -> None:
    def bound(**config: Any) -> Any:
        memory = Memory(read=None, scope="user", generate=MemoryGenerateConfig(**config))
        agent: SandboxAgent[Any] = SandboxAgent(name="coder", capabilities=[memory])
        sandbox = SandboxRunConfig(client=UnixLocalSandboxClient())
        return RunPlan(agent, RunConfig(sandbox=sandbox), "r1").bound

    kept = KeptModels()
    kept.keep("named", bound())
    own = OpenAIResponsesModel("m", object())
    kept.keep("object", bound(phase_one_model=own))
    assert kept.get("named") == {}
    assert kept.get("object")["user"].of("extract")[0] is own
