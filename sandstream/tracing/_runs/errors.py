"""Convert errors of a run to errors of spans."""

from __future__ import annotations

from typing import NamedTuple

from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import ErrorInfo, RunDone

from sandstream.tracing._runs.models import is_without_answer
from sandstream.tracing.spans import SpanError

_REDACTED = "(not shown: trace_include_sensitive_data is off)"


class EndedBadly(NamedTuple):
    """The errors for the spans of a failed run."""

    of_model: SpanError | None = None
    of_turn: SpanError | None = None
    of_agent: SpanError | None = None


def tool_error(
    name: str, error: ErrorInfo | None, *, is_told: bool, contents: bool
) -> SpanError | None:
    """The error of a tool call; ``is_told``: the model sees it and the run continues."""
    if error is None:
        return None
    what = "Error running tool (non-fatal)" if is_told else "Error running tool"
    said = error.message if contents else _REDACTED
    return {"message": what, "data": {"tool_name": name, "error": said}}


def out_of_turns(state: RunState) -> SpanError:
    limit = {"max_turns": state.options.max_turns}
    return {"message": "Max turns exceeded", "data": limit}


def ended_badly(done: RunDone, state: RunState, *, contents: bool) -> EndedBadly:
    error = done.error
    if error is None or error.code == "cancelled":
        return EndedBadly()
    said = error.message if contents else _REDACTED
    match error.code:
        case "max_turns":
            return EndedBadly(of_agent=out_of_turns(state))
        case (
            "input_guardrail"
            | "output_guardrail"
            | "tool_input_guardrail"
            | ("tool_output_guardrail")
        ):
            tripped: SpanError = {
                "message": "Guardrail tripwire triggered",
                "data": {"guardrail": error.data.get("guardrail")},
            }
            is_of_turn = error.code == "input_guardrail"
            return EndedBadly(of_turn=tripped) if is_of_turn else EndedBadly(of_agent=tripped)
        case "model_behavior" if not is_without_answer(state, done):
            if "tool" in error.data:
                return EndedBadly(
                    of_turn={"message": "Tool not found", "data": {"tool_name": error.data["tool"]}}
                )
            return EndedBadly(
                of_turn={"message": "Unexpected answer of the model", "data": {"error": said}}
            )
    return EndedBadly(
        of_model={"message": "Error getting response", "data": {"error": said}},
        of_agent={"message": "Error in agent run", "data": {"error": said}},
    )
