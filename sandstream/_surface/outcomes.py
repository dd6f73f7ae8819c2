"""Converts the end of a run from exceptions to data and back."""

from __future__ import annotations

from typing import Any

from sandstream_actors.model.vendor_types import vendor_error
from sandstream_bus.wire.error_text import error_text, sendable
from sandstream_bus.wire.messages import ErrorInfo, RunDone

from sandstream._surface.json_values import as_plain
from sandstream.agent import Agent
from sandstream.exceptions import (
    AgentsException,
    ApprovalExpired,
    BudgetExceeded,
    ConversationBusy,
    GuardrailTimeout,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRefusalError,
    ModelTimeoutError,
    OutputGuardrailTripwireTriggered,
    RunCancelled,
    RunFailed,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    ToolTimeoutError,
    UserError,
)
from sandstream.guardrail import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailResult,
    function_elsewhere,
)
from sandstream.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)


def error_info(error: BaseException) -> ErrorInfo:
    """An exception of the user's code or of ours, as data."""
    data: dict[str, Any] = {"exception": type(error).__name__}
    code = "tool_error"
    match error:
        case ToolTimeoutError():
            code = "tool_timeout"
            data |= {"tool": error.tool_name, "timeout_s": error.timeout_seconds}
        case ModelRefusalError():
            code = "model_refusal"
            data |= {"refusal": error.refusal}
        case ModelBehaviorError():
            code = "model_behavior"
        case ModelTimeoutError():
            code = "model_timeout"
            data |= {"timeout_s": error.timeout_seconds}
        case UserError():
            code = "user_error"
        case InputGuardrailTripwireTriggered() | OutputGuardrailTripwireTriggered():
            code = error.code
            result = error.guardrail_result
            data |= _guardrail_data(result.guardrail, result.output)
            if isinstance(error, OutputGuardrailTripwireTriggered):
                data["agent"] = error.guardrail_result.agent.name
        case ToolInputGuardrailTripwireTriggered() | ToolOutputGuardrailTripwireTriggered():
            code = error.code
            data |= _guardrail_data(error.guardrail, error.output)
        case GuardrailTimeout():
            code = error.code
            data |= {"guardrail": error.name, "timeout_s": error.timeout_seconds}
        case BudgetExceeded():
            code = error.code
            data |= {"budget": error.budget}
        case ApprovalExpired() | ConversationBusy():
            code = error.code
        case _:
            pass
    return ErrorInfo(code=code, message=error_text(error), data=_sendable(data))


def _sendable(data: dict[str, Any]) -> dict[str, Any]:
    return {key: sendable(it) if isinstance(it, str) else it for key, it in data.items()}


def _guardrail_data(guardrail: Any, output: Any) -> dict[str, Any]:
    return {"guardrail": guardrail.get_name(), "info": as_plain(output.output_info)}


def exception_of(done: RunDone, run_id: str) -> Exception | None:
    """The exception that a caller should get for a run's end; None if it completed."""
    if done.status == "completed" or done.error is None:
        return None
    return exception_of_error(done.error, run_id)


def exception_of_error(error: ErrorInfo, run_id: str) -> Exception:
    """The exception for an error."""
    data = error.data
    match error.code:
        case "cancelled":
            return RunCancelled(run_id, error.message)
        case "max_turns":
            return MaxTurnsExceeded(error.message)
        case "model_refusal":
            return ModelRefusalError(data.get("refusal", error.message))
        case "model_behavior":
            return ModelBehaviorError(error.message)
        case "model_timeout":
            return ModelTimeoutError(data.get("timeout_s", 0))
        case "tool_timeout":
            return ToolTimeoutError(data.get("tool", "?"), data.get("timeout_s", 0))
        case "model_misconfigured" if data.get("code") == "duplicate_argument":
            return TypeError(error.message)
        case "input_guardrail" | "output_guardrail":
            return _agent_tripwire(error)
        case "tool_input_guardrail" | "tool_output_guardrail":
            return _tool_tripwire(error)
        case "guardrail_timeout":
            return GuardrailTimeout(data.get("guardrail", "?"), data.get("timeout_s", 0))
        case "budget":
            return BudgetExceeded(error.message, data.get("budget", "?"))
        case "approval_expired":
            return ApprovalExpired(error.message)
        case "conversation_busy":
            return ConversationBusy(error.message)
        case "user_error" | "tool_error" | "model_misconfigured":
            return UserError(error.message)
        case "model_http":
            return vendor_error(error.message, data.get("status"), data.get("body"))
        case code if code == "workspace.lost" or code.startswith("sandbox."):
            return _sandbox_error(error)
        case _:
            return RunFailed(error.message, code=error.code, run_id=run_id)


def _agent_tripwire(error: ErrorInfo) -> Exception:
    """A tripwire exception made from data: its guardrail has a name but no function."""
    data = error.data
    name = data.get("guardrail", "?")
    output = GuardrailFunctionOutput(output_info=data.get("info"), tripwire_triggered=True)
    if error.code == "input_guardrail":
        checked: InputGuardrail[Any] = InputGuardrail(function_elsewhere, name)
        return InputGuardrailTripwireTriggered(InputGuardrailResult(checked, output))
    agent: Agent[Any] = Agent(name=data.get("agent", "?"))
    guardrail: OutputGuardrail[Any] = OutputGuardrail(function_elsewhere, name)
    return OutputGuardrailTripwireTriggered(OutputGuardrailResult(guardrail, None, agent, output))


def _tool_tripwire(error: ErrorInfo) -> Exception:
    name = error.data.get("guardrail", "?")
    output = ToolGuardrailFunctionOutput.raise_exception(error.data.get("info"))
    if error.code == "tool_input_guardrail":
        before: ToolInputGuardrail[Any] = ToolInputGuardrail(function_elsewhere, name)
        return ToolInputGuardrailTripwireTriggered(before, output)
    after: ToolOutputGuardrail[Any] = ToolOutputGuardrail(function_elsewhere, name)
    return ToolOutputGuardrailTripwireTriggered(after, output)


def _sandbox_error(error: ErrorInfo) -> Exception:
    from sandstream_bus.wire.sandboxes import SandboxFailure

    from sandstream.sandbox.errors import error_from_failure

    code = error.code.removeprefix("sandbox.").replace("workspace.lost", "workspace_lost")
    context = {name: value for name, value in error.data.items() if name != "op"}
    return error_from_failure(
        SandboxFailure(
            code=code, message=error.message, op=str(error.data.get("op", "")), context=context
        )
    )


def attach_details(error: BaseException, details: Any) -> BaseException:
    """Attach the run's data to one of our exceptions."""
    if isinstance(error, AgentsException):
        error.run_data = details
    return error
