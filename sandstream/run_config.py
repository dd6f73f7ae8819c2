"""Settings of one run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
from sandstream_bus.wire.specs import MAX_SECONDS, Budget

from sandstream.exceptions import UserError
from sandstream.items import TResponseInputItem
from sandstream.memory.session_settings import SessionSettings
from sandstream.model_settings import ModelSettings
from sandstream.models.interface import Model, ModelProvider
from sandstream.tracing.config import (
    TracingConfig,
    check_trace_settings,
    includes_sensitive_data,
)

if TYPE_CHECKING:
    from sandstream.agent import Agent
    from sandstream.guardrail import InputGuardrail, OutputGuardrail
    from sandstream.handoffs import HandoffHistoryMapper, HandoffInputFilter
    from sandstream.run_context import RunContextWrapper
    from sandstream.sandbox.config import (
        SandboxArchiveLimits,
        SandboxConcurrencyLimits,
        SandboxRunConfig,
    )

__all__ = [
    "CallModelData",
    "CallModelInputFilter",
    "ModelInputData",
    "OutputGuardrailBlockedMessageArgs",
    "OutputGuardrailBlockedMessageFormatter",
    "ReasoningItemIdPolicy",
    "RunConfig",
    "SandboxArchiveLimits",
    "SandboxConcurrencyLimits",
    "SandboxRunConfig",
    "ToolErrorFormatter",
    "ToolErrorFormatterArgs",
    "ToolExecutionConfig",
    "ToolNameCollisionPolicy",
    "ToolNotFoundBehavior",
]

T = TypeVar("T")
DEFAULT_MAX_TURNS = 10


@dataclass
class ModelInputData:
    """The input of a model call, which a filter may change."""

    input: list[TResponseInputItem]
    """The items for the model."""
    instructions: str | None
    """The system prompt."""


@dataclass
class CallModelData(Generic[T]):
    """The argument of a ``call_model_input_filter``.

    Example:
        def newest_only(data: CallModelData[Any]) -> ModelInputData:
            model_data = data.model_data
            return ModelInputData(model_data.input[-20:], model_data.instructions)


        config = RunConfig(call_model_input_filter=newest_only)
    """

    model_data: ModelInputData
    """The input that would be sent; return it, changed or not."""
    agent: Agent[Any]
    """The agent whose model is called."""
    context: Any | None
    """The value of ``Runner.run(context=...)``."""


CallModelInputFilter = Callable[[CallModelData[Any]], ModelInputData | Awaitable[ModelInputData]]
SessionInputCallback = Callable[
    [list[TResponseInputItem], list[TResponseInputItem]],
    list[TResponseInputItem] | Awaitable[list[TResponseInputItem]],
]
"""``(history, new input)`` -> the input of the run."""
ReasoningItemIdPolicy = Literal["preserve", "omit"]
ToolNotFoundBehavior = Literal["raise_error", "return_error_to_model"]
ToolNameCollisionPolicy = Literal["warn", "error"]


@dataclass
class ToolErrorFormatterArgs:
    """The argument of a ``tool_error_formatter``.

    Example:
        def politely(args: ToolErrorFormatterArgs) -> str | None:
            return f"{args.tool_name} is not available." if args.kind == "tool_exception" else None


        config = RunConfig(tool_error_formatter=politely)
    """

    kind: Literal["approval_rejected", "tool_not_found", "tool_exception"]
    """What happened to the call."""
    tool_type: Literal["function"]
    """The kind of the tool."""
    tool_name: str
    """The name of the tool."""
    call_id: str
    """The model's id of the call."""
    default_message: str
    """The text that the model gets if the formatter returns ``None``."""
    run_context: RunContextWrapper[Any]
    """The context of the run."""
    error: Exception | None = None
    """The exception of the tool, if ``kind`` is ``tool_exception``."""


ToolErrorFormatter = Callable[[ToolErrorFormatterArgs], str | Awaitable[str | None] | None]


@dataclass
class OutputGuardrailBlockedMessageArgs(Generic[T]):
    """The argument of an ``output_guardrail_blocked_message`` function; omits the output."""

    default_message: str
    """The text that is used if the function returns ``None``."""
    guardrail_name: str
    """The guardrail that refused the output."""
    agent: Agent[Any]
    """The agent that produced the output."""
    run_context: RunContextWrapper[T]
    """The context of the run."""


OutputGuardrailBlockedMessageFormatter = Callable[
    [OutputGuardrailBlockedMessageArgs[Any]], str | None
]


@dataclass
class ToolExecutionConfig:
    """Settings for the function tools of one answer."""

    max_function_tool_concurrency: int | None = None
    """How many tools of one answer may run at once; ``None`` removes the limit."""
    pre_approval_tool_input_guardrails: bool = False
    """Whether input guardrails of a tool also run before a person is asked."""

    def __post_init__(self) -> None:
        limit = self.max_function_tool_concurrency
        if limit is not None and limit < 1:
            raise UserError("max_function_tool_concurrency must be None or at least 1")


@dataclass
class RunConfig:
    """Settings for a whole run, for all of its agents.

    Args:
        model: The model of all agents, instead of their own.
        model_provider: Finds the model of a name; ``None`` is OpenAI and compatible endpoints.
        model_settings: Replaces those settings of the agents that are given here.
        handoff_input_filter: Changes what the next agent sees, for handoffs without a filter.
        nest_handoff_history: Give the next agent a summary of the conversation in one message.
        handoff_history_mapper: Makes this summary.
        input_guardrails: Checks of the input, in addition to those of the first agent.
        output_guardrails: Checks of the output, in addition to those of the last agent.
        tracing_disabled: Trace nothing of the run; a trace around it does not show it either.
        tracing: Options of the exporter for this run, such as its API key.
        trace_include_sensitive_data: Whether traces may hold the words of people, models and tools.
        workflow_name: The name of the run's trace.
        trace_id: The id of the run's trace, if the run is not started inside of one.
        group_id: Connects the traces of several runs, for example those of one conversation.
        trace_metadata: Additional data of the trace.
        session_input_callback: Combines the session's history and the new input.
        call_model_input_filter: Changes the input and instructions of each model call.
        tool_error_formatter: Makes the texts that tell the model about tool errors.
        session_settings: Replaces settings of the session, such as how many items to read.
        reasoning_item_id_policy: Whether reasoning items keep their ids in the next model call.
        tool_execution: How function tools of one answer are run.
        tool_not_found_behavior: End the run when the model calls an unknown tool, or tell it.
        tool_name_collision_policy: Warn about two tools with one name, or refuse the run.
        sandbox: Where the sandbox agents of the run work.
        output_guardrail_blocked_message: Replaces a tool's result that was the output and that a
            guardrail refused.
        budget: Limits for the run and all of its child runs together.
        approval_expires_s: How long a call waits for a person, in seconds; ``None`` is for ever.
        approval_expiry: What happens to a call that was not answered in time.
        guardrail_timeout: How long a guardrail may take, in seconds; ``None`` removes the limit.
        run_key: Makes the run idempotent and lets it outlive its caller. A call with the same key
            continues the run, or returns its result if it has ended.
        retry_failed: If the run of the ``run_key`` has failed, continue it at the failed step.
        harness_pool: Let the harness replicas of this pool take the run's turns, instead of this
            process.

    Raises:
        UserError: A value makes no sense.
        TypeError: A value has a wrong type.

    Example:
        config = RunConfig(run_key="order-4711", budget=Budget(tokens=100_000))
        result = await Runner.run(agent, "Handle order 4711.", run_config=config)
    """

    model: str | Model | None = None
    model_provider: ModelProvider | None = None
    model_settings: ModelSettings | None = None
    handoff_input_filter: HandoffInputFilter | None = None
    nest_handoff_history: bool = False
    handoff_history_mapper: HandoffHistoryMapper | None = None
    input_guardrails: list[InputGuardrail[Any]] | None = None
    output_guardrails: list[OutputGuardrail[Any]] | None = None
    tracing_disabled: bool = False
    """Do not trace the run, not even in a trace around it."""
    tracing: TracingConfig | None = None
    trace_include_sensitive_data: bool = field(default_factory=includes_sensitive_data)
    """Whether traces may contain what people, models and tools said."""
    workflow_name: str = "Agent workflow"
    trace_id: str | None = None
    """The trace of the run, if it does not start inside another trace."""
    group_id: str | None = None
    trace_metadata: dict[str, Any] | None = None
    session_input_callback: SessionInputCallback | None = None
    call_model_input_filter: CallModelInputFilter | None = None
    tool_error_formatter: ToolErrorFormatter | None = None
    session_settings: SessionSettings | None = None
    reasoning_item_id_policy: ReasoningItemIdPolicy | None = None
    tool_execution: ToolExecutionConfig | None = None
    tool_not_found_behavior: ToolNotFoundBehavior = "raise_error"
    tool_name_collision_policy: ToolNameCollisionPolicy = "warn"
    sandbox: SandboxRunConfig | None = None
    """Where the sandbox agents of the run work."""
    output_guardrail_blocked_message: str | OutputGuardrailBlockedMessageFormatter | None = None
    """The text that replaces a tool's result if it is the output and a guardrail refuses it."""
    budget: Budget | None = field(default=None, kw_only=True)
    """The limits for the run and all of its child runs together."""
    approval_expires_s: float | None = field(default=None, kw_only=True)
    """How long a call waits for a person; None: without a limit."""
    approval_expiry: Literal["reject", "approve", "fail"] = field(default="reject", kw_only=True)
    """What happens to a call without a decision in time."""
    guardrail_timeout: float | None = field(default=300.0, kw_only=True)
    """The time limit of a guardrail in seconds."""
    run_key: str | None = field(default=None, kw_only=True)
    retry_failed: bool = field(default=False, kw_only=True)
    """If the run of the ``run_key`` has failed, retry its failed step."""
    harness_pool: str | None = field(default=None, kw_only=True)
    """Let the harness replicas of this pool take the run's turns, instead of this process."""

    def __post_init__(self) -> None:
        if isinstance(self.model_settings, Mapping):
            self.model_settings = ModelSettings.coerce(self.model_settings)
        if isinstance(self.tool_execution, Mapping):
            self.tool_execution = _from_dict(ToolExecutionConfig, self.tool_execution)
        if self.sandbox is not None:
            self.sandbox = _sandbox_config(self.sandbox)
        if isinstance(self.session_settings, Mapping):
            self.session_settings = _from_dict(SessionSettings, self.session_settings)
        if isinstance(self.budget, Mapping):
            self.budget = _budget(self.budget)
        _check_choice(self.approval_expiry, "approval_expiry", ("reject", "approve", "fail"))
        _check_expiry(self.approval_expires_s)
        if self.call_model_input_filter is not None and not callable(self.call_model_input_filter):
            raise UserError("call_model_input_filter must be callable")
        _check_choice(
            self.tool_not_found_behavior,
            "tool_not_found_behavior",
            ("raise_error", "return_error_to_model"),
        )
        _check_choice(
            self.tool_name_collision_policy, "tool_name_collision_policy", ("warn", "error")
        )
        _check_blocked_message(self.output_guardrail_blocked_message)
        check_trace_settings(self)
        if self.run_key is not None and not self.run_key:
            raise UserError("run_key must not be empty; leave it out for a run without a key")
        if self.retry_failed and self.run_key is None:
            raise UserError("retry_failed needs a run_key: it applies to the run of that key")

    @classmethod
    def coerce(cls, value: RunConfig | Mapping[str, Any] | None) -> RunConfig:
        """Return a configuration unchanged, or make one from a dict.

        Args:
            value: A configuration, a dict with the names of its fields, or ``None`` for the
                defaults.

        Returns:
            The configuration.

        Raises:
            TypeError: ``value`` is neither, or the dict has an unknown key.
        """
        if value is None:
            return cls()
        if isinstance(value, RunConfig):
            return value
        if isinstance(value, Mapping):
            return _from_dict(cls, value)
        raise TypeError(f"run_config must be a RunConfig or a dict, not {type(value).__name__}")


def _check_blocked_message(value: Any) -> None:
    what = "output_guardrail_blocked_message"
    if isinstance(value, str):
        if not value:
            raise ValueError(f"{what} must not be empty; leave it out for the default text")
    elif value is not None and (not callable(value) or inspect.iscoroutinefunction(value)):
        raise TypeError(f"{what} must be a text or a function that is not async")


def _sandbox_config(value: Any) -> SandboxRunConfig:
    from sandstream.sandbox.config import SandboxRunConfig

    if isinstance(value, SandboxRunConfig):
        return value
    if isinstance(value, Mapping):
        return _from_dict(SandboxRunConfig, value)
    raise TypeError(f"sandbox must be a SandboxRunConfig or a dict, not {type(value).__name__}")


def __getattr__(name: str) -> Any:
    """The sandbox settings, imported on demand: most runs have no sandbox."""
    if name in ("SandboxArchiveLimits", "SandboxConcurrencyLimits", "SandboxRunConfig"):
        from sandstream.sandbox import config

        return getattr(config, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    known = {item.name for item in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - known)
    if unknown:
        raise TypeError(
            f"{cls.__name__} has no field {', '.join(unknown)}; it knows {', '.join(sorted(known))}"
        )
    return cls(**values)


def _check_choice(value: str, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}; it is {value!r}")


def _check_expiry(value: Any) -> None:
    if value is not None and not (isinstance(value, int | float) and 0 < value <= MAX_SECONDS):
        raise UserError(
            f"approval_expires_s must be a number of seconds above 0 and up to {MAX_SECONDS:,}, or "
            f"None: people may take as long as they like; it is {value!r}"
        )


def _budget(value: Mapping[str, Any]) -> Budget:
    limits = Budget.__struct_fields__
    unknown = [name for name in value if name not in limits]
    if unknown:  # a misspelled limit would have no effect
        raise UserError(f"RunConfig budget has no {unknown[0]!r}; it has {', '.join(limits)}")
    try:
        return msgspec.convert(dict(value), Budget)
    except msgspec.ValidationError as error:
        raise UserError(f"RunConfig budget: {error}") from None
