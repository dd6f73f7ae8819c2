"""Runs with something private planted in every place that a trace could take it from.

``python privacy_program.py`` prints, as JSON, the ids of its runs and what its own trace processor
was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import Any

from sandstream import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    function_tool,
    input_guardrail,
    tool_input_guardrail,
)
from sandstream.exceptions import AgentsException
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.errors import SandboxError
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, error, script_for, text, tool_call
from sandstream.tracing import (
    Span,
    Trace,
    TracingProcessor,
    custom_span,
    function_span,
    set_trace_processors,
)

PLACES = (
    *("prompt", "instructions", "arguments", "output", "failure", "modelerror", "agent", "tool"),
    *("workflow", "metadata", "group", "custom", "sandbox", "command", "answer", "childinput"),
    *("told", "errordata", "path", "guardinfo", "guardword", "reason"),
)


def key(place: str) -> str:
    """It looks like a key: masked whether anybody asks for it or not."""
    return f"sk-{place}0123456789abcdefghij"


def word(place: str) -> str:
    """Only the user's hook knows that this is private."""
    return f"PLANTED-{place}"


def planted(place: str) -> str:
    return f"{key(place)} {word(place)}"


class Listener(TracingProcessor):
    """Writes down everything that it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.heard.append(trace.export())

    def on_trace_end(self, trace: Trace) -> None:
        self.heard.append(trace.export())

    def on_span_start(self, span: Span[Any]) -> None:
        self.heard.append(span.export())

    def on_span_end(self, span: Span[Any]) -> None:
        self.heard.append(span.export())

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass


@function_tool(failure_error_function=None)
async def fail(note: str) -> str:
    """Fails with what it was given."""
    raise ValueError(f"cannot do it: {note}")


@function_tool(name_override=f"look_{word('tool').lower().replace('-', '_')}")
async def look(note: str) -> str:
    """Answers with something private."""
    with custom_span("a look", {"seen": planted("custom"), "note": "harmless-custom"}):
        return f"harmless-output {planted('output')}"


@function_tool
async def stumble(note: str) -> str:
    """Fails, in several ways, and the model is told so."""
    with function_span("inner") as span:
        span.set_error({"message": "it went wrong", "data": {"why": planted("errordata")}})
    assert BOXES
    with contextlib.suppress(SandboxError):
        await BOXES[0].read(word("path"))
    raise ValueError(f"cannot do it: {note}")


BOXES: list[Any] = []
"""A session of the program's own."""


@input_guardrail
async def nosy(ctx: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
    """Trips, and quotes what it has seen."""
    return GuardrailFunctionOutput({"seen": planted("guardinfo")}, tripwire_triggered=True)


@tool_input_guardrail
async def strict(data: Any) -> ToolGuardrailFunctionOutput:
    """Refuses, and tells the model why."""
    return ToolGuardrailFunctionOutput.reject_content(f"no: {planted('guardword')}")


@function_tool(tool_input_guardrails=[strict])
async def guarded() -> str:
    """Is never called."""
    return "never"


@function_tool(needs_approval=True)
async def careful() -> str:
    """Is never called."""
    return "never"


LOOK = look.name

SCRIPTS = [
    script_for(
        "harmless-prompt",
        [
            tool_call(LOOK, {"note": f"harmless-arguments {planted('arguments')}"}),
            text(f"harmless-answer {planted('answer')}"),
        ],
    ),
    script_for("fails-prompt", [tool_call("fail", {"note": planted("failure")}), text("no")]),
    script_for(
        "refused-prompt",
        [error(400, code="bad", message=f"No: {planted('modelerror')}").forever()],
    ),
    script_for(
        "stumbles-prompt",
        [
            tool_call("stumble", {"note": planted("told")}),
            tool_call("guarded", {}),
            tool_call("careful", {}),
            text("no"),
        ],
    ),
    script_for(
        "boxed-prompt",
        [
            tool_call(
                "exec_command", {"cmd": f"echo {planted('command')}; echo {planted('sandbox')} >&2"}
            ),
            text("done"),
        ],
    ),
    script_for(
        "discreet-prompt", [tool_call("fail", {"note": "discreet-arguments"}), text("never")]
    ),
    script_for(
        "discreet-question",
        [tool_call(LOOK, {"note": "discreet-arguments"}), text("discreet-answer")],
    ),
    script_for(
        "silent-prompt",
        [tool_call("silent_helper", {"input": "silent-childinput"}), text("silent-answer")],
    ),
    script_for("silent-childinput", [tool_call(LOOK, {"note": "silent"}), text("silent-inner")]),
    script_for(
        "silent-box", [tool_call("exec_command", {"cmd": "echo silent-command"}), text("silent")]
    ),
]

OPEN = RunConfig(
    workflow_name=f"flow {planted('workflow')}",
    group_id=f"group {planted('group')}",
    trace_metadata={"note": planted("metadata"), "password": "hunter2-planted"},
)
DISCREET = RunConfig(workflow_name="discreet flow", trace_include_sensitive_data=False)
SILENT = RunConfig(workflow_name="silent flow", group_id="silent group", tracing_disabled=True)


def boxed(config: RunConfig) -> RunConfig:
    sandbox = SandboxRunConfig(client=UnixLocalSandboxClient())
    return RunConfig(
        workflow_name=config.workflow_name,
        tracing_disabled=config.tracing_disabled,
        sandbox=sandbox,
    )


async def run(agent: Agent[Any], prompt: str, config: RunConfig) -> str:
    """The id of the run, however it ends."""
    result = Runner.run_streamed(agent, prompt, run_config=config)
    try:
        async for _ in result.stream_events():
            pass
    except AgentsException:
        pass
    except Exception as failure:  # what a model or a tool of theirs raises
        if type(failure).__module__.startswith("sandstream_"):
            raise
    return result.run_id


async def run_refused(agent: Agent[Any], prompt: str) -> str:
    """A run that waits for a person, who says no and why."""
    async with await UnixLocalSandboxClient().create() as box:
        BOXES.append(box)
        result = await Runner.run(agent, prompt, run_config=OPEN)
        state = result.to_state()
        for item in result.interruptions:
            state.reject(item, rejection_message=planted("reason"))
        await Runner.run(agent, state)
    return result.run_id


async def main() -> dict[str, Any]:
    """The runs, and what was heard of them."""
    listener = Listener()
    set_trace_processors([listener])
    agent = Agent(
        name=f"agent {planted('agent')}",
        instructions=f"harmless-instructions {planted('instructions')}",
        tools=[look, fail],
    )
    clumsy = Agent(name="clumsy", tools=[stumble, guarded, careful])
    watched = Agent(name="watched", input_guardrails=[nosy])
    box = SandboxAgent(name="box", instructions="Work.")
    helper = Agent(name="silent helper", instructions="silent-instructions", tools=[look])
    silent = Agent(
        name="silent agent",
        tools=[helper.as_tool("silent_helper", "It helps.")],
    )
    found = {
        "open": await run(agent, f"harmless-prompt {planted('prompt')}", OPEN),
        "fails": await run(agent, "fails-prompt", OPEN),
        "refused": await run(agent, "refused-prompt", OPEN),
        "stumbles": await run_refused(clumsy, "stumbles-prompt"),
        "tripped": await run(watched, "tripped-prompt", OPEN),
        "boxed": await run(box, "boxed-prompt", boxed(OPEN)),
        "discreet": await run(agent, "discreet-prompt", DISCREET),
        "discreet2": await run(agent, "discreet-question", DISCREET),
    }
    heard = json.dumps(listener.heard, default=str)
    listener.heard.clear()
    await run(silent, "silent-prompt", SILENT)
    await run(box, "silent-box", boxed(SILENT))
    return {
        "runs": found,
        "heard": heard,
        "of_silent": json.dumps(listener.heard, default=str),
    }


if __name__ == "__main__":
    with ScriptedModel(conversations=SCRIPTS, strict=False) as model:
        os.environ["OPENAI_BASE_URL"] = model.base_url
        print(json.dumps(asyncio.run(main())))
