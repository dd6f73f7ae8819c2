"""Every error that a user of ``sandstream`` can catch.

    AgentsException                 root; ``run_data`` is the run up to the failure
    ├── MaxTurnsExceeded            the run used up its turns
    ├── ModelBehaviorError          the model made a mistake: bad JSON, unknown tool, ...
    ├── ModelRefusalError           the model refused; ``refusal`` is its text
    ├── ModelTimeoutError           a model call took longer than ``ModelSettings.timeout``
    ├── UserError                   Sandstream is used incorrectly; the text says how to fix it
    │   └── RetryRefused            (ours) the run cannot be retried, or not with these settings
    ├── ToolTimeoutError            a tool with ``timeout_behavior="raise_exception"`` took too long
    ├── InputGuardrailTripwireTriggered         a guardrail refused the input of the run
    ├── OutputGuardrailTripwireTriggered        a guardrail refused its final output
    ├── ToolInputGuardrailTripwireTriggered     a tool's guardrail refused a call
    ├── ToolOutputGuardrailTripwireTriggered    a tool's guardrail refused the tool's output
    ├── GuardrailTimeout            (ours) a guardrail did not answer in time
    ├── BudgetExceeded              (ours) the run used up its tokens, its time or its tool calls
    ├── ApprovalExpired             (ours) an approval was not decided in time
    ├── ConversationBusy            (ours) another run uses the conversation
    ├── RunCancelled                (ours) the run was cancelled
    └── RunFailed                   (ours) the run ended for a reason that has no class above

Each has a ``code`` that never changes (that of ``RunFailed`` names the reason). Branch on the
class or the code, never on the text.
This module does not know the bus: the reader of a terminal event builds the exception.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.guardrail import InputGuardrailResult, OutputGuardrailResult
    from sandstream.run_context import RunContextWrapper
    from sandstream.tool_guardrails import (
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        ToolOutputGuardrail,
    )

__all__ = [
    "AgentsException",
    "ApprovalExpired",
    "BudgetExceeded",
    "ConversationBusy",
    "GuardrailTimeout",
    "InputGuardrailTripwireTriggered",
    "MaxTurnsExceeded",
    "ModelBehaviorError",
    "ModelRefusalError",
    "ModelTimeoutError",
    "OutputGuardrailTripwireTriggered",
    "RetryRefused",
    "RunCancelled",
    "RunErrorDetails",
    "RunFailed",
    "ToolInputGuardrailTripwireTriggered",
    "ToolOutputGuardrailTripwireTriggered",
    "ToolTimeoutError",
    "UserError",
]


@dataclass
class RunErrorDetails:
    """The run up to its failure; attached to the exception as ``run_data``."""

    input: str | list[Any]
    """The input of the run."""
    new_items: list[Any]
    """The items that the run had produced."""
    raw_responses: list[Any]
    """The answers of the model, one for each call."""
    last_agent: Any
    """The agent that was running."""
    context_wrapper: RunContextWrapper[Any]
    """The context of the run, with its token usage."""
    input_guardrail_results: list[Any]
    """The verdicts of the checks of the input."""
    output_guardrail_results: list[Any]
    """The verdicts of the checks of the output."""
    tool_input_guardrail_results: list[Any] = field(default_factory=list)
    """The verdicts of the checks before tool calls."""
    tool_output_guardrail_results: list[Any] = field(default_factory=list)
    """The verdicts of the checks after tool calls."""

    def __str__(self) -> str:
        agent_name = getattr(self.last_agent, "name", None)
        return (
            f"RunErrorDetails(last_agent={agent_name!r}, new_items={len(self.new_items)}, "
            f"raw_responses={len(self.raw_responses)})"
        )


class AgentsException(Exception):
    """Root of all exceptions. The runner sets ``run_data`` when the error leaves a run.

    Args:
        args: The texts of the exception, as for any exception.

    Example:
        try:
            result = await Runner.run(agent, "How is the weather?")
        except AgentsException as error:
            print(error.code, error.run_data)
    """

    code: str = "error"
    run_data: RunErrorDetails | None

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.run_data = None


class _MessageError(AgentsException):
    """An error that consists of its message, available as ``.message``.

    Args:
        message: What happened, and what to do about it.
    """

    message: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class MaxTurnsExceeded(_MessageError):
    """The run used all of its allowed turns without reaching a final output."""

    code = "max_turns"


class ModelBehaviorError(_MessageError):
    """The model produced something that cannot be acted on."""

    code = "model_behavior"


class ModelRefusalError(AgentsException):
    """The model's final message was a refusal.

    Args:
        refusal: The text in which the model refused.
    """

    code = "model_refusal"
    refusal: str

    def __init__(self, refusal: str) -> None:
        super().__init__(f"Model refused to produce output: {refusal}")
        self.refusal = refusal

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refusal,), {"run_data": self.run_data}


class ModelTimeoutError(AgentsException):
    """One model call took longer than its ``ModelSettings.timeout``.

    Args:
        timeout_seconds: The time limit of the call.
    """

    code = "model_timeout"
    timeout_seconds: float

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"Model call timed out after {timeout_seconds:g} seconds.")
        self.timeout_seconds = timeout_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.timeout_seconds,), {"run_data": self.run_data}


class UserError(_MessageError):
    """Sandstream is used in a way that cannot work."""

    code = "user_error"


class RetryRefused(UserError):
    """The run cannot be retried, or not with these settings. Nothing was changed."""

    code = "retry_refused"


class ToolTimeoutError(AgentsException):
    """A function tool took longer than its ``timeout_seconds``.

    Args:
        tool_name: The tool that took too long.
        timeout_seconds: The time limit of the call.
    """

    code = "tool_timeout"
    tool_name: str
    timeout_seconds: float

    def __init__(self, tool_name: str, timeout_seconds: float) -> None:
        super().__init__(f"Tool '{tool_name}' timed out after {timeout_seconds:g} seconds.")
        self.tool_name = tool_name
        self.timeout_seconds = timeout_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tool_name, self.timeout_seconds), {"run_data": self.run_data}


class InputGuardrailTripwireTriggered(AgentsException):
    """An input guardrail tripped.

    Args:
        guardrail_result: The guardrail and its verdict.
    """

    code = "input_guardrail"
    guardrail_result: InputGuardrailResult

    def __init__(self, guardrail_result: InputGuardrailResult) -> None:
        super().__init__(_tripped("Guardrail", guardrail_result.guardrail))
        self.guardrail_result = guardrail_result

    def __reduce__(self) -> tuple[Any, ...]:
        result = self.guardrail_result
        sent = replace(result, guardrail=_without_function(result.guardrail))
        return type(self), (sent,), {"run_data": self.run_data}


class OutputGuardrailTripwireTriggered(AgentsException):
    """An output guardrail tripped.

    Args:
        guardrail_result: The guardrail, its verdict, and the output that it refused.
    """

    code = "output_guardrail"
    guardrail_result: OutputGuardrailResult

    def __init__(self, guardrail_result: OutputGuardrailResult) -> None:
        super().__init__(_tripped("Guardrail", guardrail_result.guardrail))
        self.guardrail_result = guardrail_result

    def __reduce__(self) -> tuple[Any, ...]:
        from sandstream.agent import Agent

        result = self.guardrail_result
        # an agent contains functions, which cannot be pickled, like the guardrail's function
        sent = replace(
            result,
            guardrail=_without_function(result.guardrail),
            agent=Agent(name=result.agent.name),
        )
        return type(self), (sent,), {"run_data": self.run_data}


class ToolInputGuardrailTripwireTriggered(AgentsException):
    """A tool's guardrail ended the run before the call.

    Args:
        guardrail: The guardrail that ended the run.
        output: Its verdict.
    """

    code = "tool_input_guardrail"
    guardrail: ToolInputGuardrail[Any]
    output: ToolGuardrailFunctionOutput

    def __init__(
        self, guardrail: ToolInputGuardrail[Any], output: ToolGuardrailFunctionOutput
    ) -> None:
        super().__init__(_tripped("Tool input guardrail", guardrail))
        self.guardrail = guardrail
        self.output = output

    def __reduce__(self) -> tuple[Any, ...]:
        sent = _without_function(self.guardrail)
        return type(self), (sent, self.output), {"run_data": self.run_data}


class ToolOutputGuardrailTripwireTriggered(AgentsException):
    """A tool's guardrail ended the run after the call.

    Args:
        guardrail: The guardrail that ended the run.
        output: Its verdict.
    """

    code = "tool_output_guardrail"
    guardrail: ToolOutputGuardrail[Any]
    output: ToolGuardrailFunctionOutput

    def __init__(
        self, guardrail: ToolOutputGuardrail[Any], output: ToolGuardrailFunctionOutput
    ) -> None:
        super().__init__(_tripped("Tool output guardrail", guardrail))
        self.guardrail = guardrail
        self.output = output

    def __reduce__(self) -> tuple[Any, ...]:
        sent = _without_function(self.guardrail)
        return type(self), (sent, self.output), {"run_data": self.run_data}


class GuardrailTimeout(AgentsException):
    """A guardrail took too long. The run ends: unchecked content does not pass.

    Args:
        name: The guardrail that took too long.
        timeout_seconds: The time limit of the check.
    """

    code = "guardrail_timeout"
    name: str
    timeout_seconds: float

    def __init__(self, name: str, timeout_seconds: float) -> None:
        super().__init__(f"Guardrail '{name}' timed out after {timeout_seconds:g} seconds.")
        self.name = name
        self.timeout_seconds = timeout_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.timeout_seconds), {"run_data": self.run_data}


class BudgetExceeded(_MessageError):
    """The run and its child runs used up the budget; ``budget`` names the exceeded limit.

    Args:
        message: What happened, and what to do about it.
        budget: The exceeded limit, by its name in :class:`Budget`, or ``depth`` for too many levels
            of child runs.
    """

    code = "budget"
    budget: str

    def __init__(self, message: str, budget: str) -> None:
        super().__init__(message)
        self.budget = budget

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.budget), {"run_data": self.run_data}


class ApprovalExpired(_MessageError):
    """A call waited for a person's decision longer than allowed."""

    code = "approval_expired"


class ConversationBusy(_MessageError):
    """Another run uses the conversation, and this run was not allowed to wait for it."""

    code = "conversation_busy"


class RunCancelled(AgentsException):
    """The run was cancelled before it had a final output.

    Args:
        run_id: The cancelled run.
        reason: Why it was cancelled; ``None`` if no reason was given.
    """

    code = "cancelled"
    run_id: str
    reason: str | None

    def __init__(self, run_id: str, reason: str | None = None) -> None:
        because = f": {reason}" if reason else ""
        super().__init__(f"Run '{run_id}' was cancelled{because}.")
        self.run_id = run_id
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run_id, self.reason), {"run_data": self.run_data}


class RunFailed(_MessageError):
    """The run ended for a reason that has no class of its own; ``code`` says which.

    Args:
        message: What happened, and what to do about it.
        code: A stable name of the kind of failure.
        run_id: The failed run.
    """

    code = "run_failed"
    run_id: str

    def __init__(self, message: str, *, code: str, run_id: str) -> None:
        super().__init__(message)
        self.code = code
        self.run_id = run_id

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild = partial(type(self), code=self.code, run_id=self.run_id)
        return rebuild, (self.message,), {"run_data": self.run_data}


def _tripped(what: str, guardrail: Any) -> str:
    return f"{what} {type(guardrail).__name__} triggered tripwire: {guardrail.get_name()!r}"


def _without_function(guardrail: Any) -> Any:
    # imported late: the guardrail module imports this one
    from sandstream.guardrail import without_function

    return without_function(guardrail)
