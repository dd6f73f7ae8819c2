"""Converts guardrail results from the user's objects to data and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from sandstream_bus.wire.messages import GuardrailRecord
from sandstream_bus.wire.specs import NO_JSON

from sandstream._surface.json_values import as_json
from sandstream.agent import Agent
from sandstream.guardrail import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailResult,
    function_elsewhere,
)
from sandstream.run_config import RunConfig
from sandstream.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailResult,
    ToolOutputGuardrail,
    ToolOutputGuardrailResult,
)

Kind = Literal["input", "output", "tool_input", "tool_output"]
AnyResult = (
    InputGuardrailResult
    | OutputGuardrailResult
    | ToolInputGuardrailResult
    | ToolOutputGuardrailResult
)


@dataclass
class GuardrailResults:
    """The results of a run, under the names that its result and its ``run_data`` use."""

    input_guardrail_results: list[InputGuardrailResult] = field(default_factory=list)
    output_guardrail_results: list[OutputGuardrailResult] = field(default_factory=list)
    tool_input_guardrail_results: list[ToolInputGuardrailResult] = field(default_factory=list)
    tool_output_guardrail_results: list[ToolOutputGuardrailResult] = field(default_factory=list)


def record(
    kind: Kind,
    name: str,
    function_output: GuardrailFunctionOutput | ToolGuardrailFunctionOutput,
    *,
    agent: str = "",
) -> GuardrailRecord:
    """A verdict as data."""
    info = function_output.output_info
    behavior = message = ""
    if isinstance(function_output, ToolGuardrailFunctionOutput):
        behavior = function_output.behavior["type"]
        tripped = behavior == "raise_exception"
        message = str(function_output.behavior.get("message", ""))
    else:
        tripped = bool(function_output.tripwire_triggered)
    return GuardrailRecord(
        kind=kind,
        name=name,
        tripped=tripped,
        behavior=behavior,
        message=message,
        info=NO_JSON if info is None else as_json(info),
        agent=agent,
    )


def records_of(results: Iterable[AnyResult], agent: str) -> list[GuardrailRecord]:
    """Results as data."""
    return [
        record(_KINDS[type(result)], result.guardrail.get_name(), result.output, agent=agent)
        for result in results
    ]


_KINDS: dict[type, Kind] = {
    InputGuardrailResult: "input",
    OutputGuardrailResult: "output",
    ToolInputGuardrailResult: "tool_input",
    ToolOutputGuardrailResult: "tool_output",
}


def results_of(
    records: Iterable[GuardrailRecord],
    agents: Mapping[str, Agent[Any]],
    *,
    config: RunConfig | None = None,
    agent_output: Any = None,
) -> GuardrailResults:
    """Records as results: with the user's guardrails if they are in this process, else with
    stand-ins that have only the name.
    """
    found = GuardrailResults()
    for each in records:
        agent = agents.get(each.agent) or Agent(name=each.agent)
        info = msgspec.json.decode(each.info) if each.info else None
        guardrail = _find(each, agent, config)
        verdict = GuardrailFunctionOutput(info, each.tripped)
        match each.kind:
            case "input":
                found.input_guardrail_results.append(InputGuardrailResult(guardrail, verdict))
            case "output":
                found.output_guardrail_results.append(
                    OutputGuardrailResult(guardrail, agent_output, agent, verdict)
                )
            case "tool_input":
                found.tool_input_guardrail_results.append(
                    ToolInputGuardrailResult(guardrail, _tool_verdict(each, info))
                )
            case "tool_output":
                found.tool_output_guardrail_results.append(
                    ToolOutputGuardrailResult(guardrail, _tool_verdict(each, info))
                )
    return found


def _tool_verdict(each: GuardrailRecord, info: Any) -> ToolGuardrailFunctionOutput:
    match each.behavior:
        case "reject_content":
            return ToolGuardrailFunctionOutput.reject_content(each.message, info)
        case "raise_exception":
            return ToolGuardrailFunctionOutput.raise_exception(info)
        case _:
            return ToolGuardrailFunctionOutput.allow(info)


_CLASSES: dict[Kind, type[Any]] = {
    "input": InputGuardrail,
    "output": OutputGuardrail,
    "tool_input": ToolInputGuardrail,
    "tool_output": ToolOutputGuardrail,
}


def _find(each: GuardrailRecord, agent: Agent[Any], config: RunConfig | None) -> Any:
    """The guardrail with the record's name."""
    owners: Sequence[Any] = agent.tools if each.kind.startswith("tool_") else (agent, config)
    for owner in owners:
        for guardrail in getattr(owner, f"{each.kind}_guardrails", None) or ():
            if guardrail.get_name() == each.name:
                return guardrail
    return _CLASSES[each.kind](function_elsewhere, each.name)
