"""Every error that a user of ``sandstream`` can catch.

    AgentsException                 root; ``run_data`` says how far the run had come
    ├── MaxTurnsExceeded            the run used up its turns
    ├── ModelBehaviorError          the model did what it must not: bad JSON, unknown tool, ...
    ├── ModelRefusalError           the model refused; ``refusal`` is its text
    ├── ModelTimeoutError           a model call took longer than ``ModelSettings.timeout``
    ├── UserError                   Sandstream is used wrongly; the text says how to mend it
    ├── ToolTimeoutError            a tool with ``timeout_behavior="raise_exception"`` took too long
    ├── RunCancelled                (ours) somebody cancelled the run
    └── RunFailed                   (ours) the run ended for a reason that has no class above

Each has a ``code`` that never changes (that of ``RunFailed`` names the reason). Branch on the
class or the code, never on the text.
This module knows nothing of the bus: whoever reads a terminal event builds the exception.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.run_context import RunContextWrapper

__all__ = [
    "AgentsException",
    "MaxTurnsExceeded",
    "ModelBehaviorError",
    "ModelRefusalError",
    "ModelTimeoutError",
    "RunCancelled",
    "RunErrorDetails",
    "RunFailed",
    "ToolTimeoutError",
    "UserError",
]


@dataclass
class RunErrorDetails:
    """What a run had done when it failed; attached to the exception as ``run_data``."""

    input: str | list[Any]
    new_items: list[Any]
    raw_responses: list[Any]
    last_agent: Any
    context_wrapper: RunContextWrapper[Any]
    input_guardrail_results: list[Any]
    output_guardrail_results: list[Any]
    tool_input_guardrail_results: list[Any] = field(default_factory=list)
    tool_output_guardrail_results: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        agent_name = getattr(self.last_agent, "name", None)
        return (
            f"RunErrorDetails(last_agent={agent_name!r}, new_items={len(self.new_items)}, "
            f"raw_responses={len(self.raw_responses)})"
        )


class AgentsException(Exception):
    """Root of the tree above. ``run_data`` is set by the runner when the error leaves a run."""

    code: str = "error"
    run_data: RunErrorDetails | None

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.run_data = None


class _MessageError(AgentsException):
    """An error that is only its message, which stays readable as ``.message``."""

    message: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class MaxTurnsExceeded(_MessageError):
    """The run took as many turns as it was allowed and had no final output yet."""

    code = "max_turns"


class ModelBehaviorError(_MessageError):
    """The model produced something that cannot be acted on."""

    code = "model_behavior"


class ModelRefusalError(AgentsException):
    """The model's final message was a refusal."""

    code = "model_refusal"
    refusal: str

    def __init__(self, refusal: str) -> None:
        super().__init__(f"Model refused to produce output: {refusal}")
        self.refusal = refusal

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refusal,), {"run_data": self.run_data}


class ModelTimeoutError(AgentsException):
    """One model call took longer than its ``ModelSettings.timeout``."""

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


class ToolTimeoutError(AgentsException):
    """A function tool took longer than its ``timeout_seconds``."""

    code = "tool_timeout"
    tool_name: str
    timeout_seconds: float

    def __init__(self, tool_name: str, timeout_seconds: float) -> None:
        super().__init__(f"Tool '{tool_name}' timed out after {timeout_seconds:g} seconds.")
        self.tool_name = tool_name
        self.timeout_seconds = timeout_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tool_name, self.timeout_seconds), {"run_data": self.run_data}


class RunCancelled(AgentsException):
    """The run was cancelled before it had a final output."""

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
    """The run ended for a reason that has no class of its own; ``code`` says which."""

    code = "run_failed"
    run_id: str

    def __init__(self, message: str, *, code: str, run_id: str) -> None:
        super().__init__(message)
        self.code = code
        self.run_id = run_id

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild = partial(type(self), code=self.code, run_id=self.run_id)
        return rebuild, (self.message,), {"run_data": self.run_data}
