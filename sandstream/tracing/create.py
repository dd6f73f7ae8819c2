"""Create traces and spans manually: ``with trace("Billing"): …``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sandstream.exceptions import UserError
from sandstream.tracing.config import TracingConfig, check_tracing_config
from sandstream.tracing.setup import get_trace_provider
from sandstream.tracing.span_data import (
    AgentSpanData,
    CustomSpanData,
    FunctionSpanData,
    GenerationSpanData,
    GuardrailSpanData,
    HandoffSpanData,
    MCPListToolsSpanData,
    ResponseSpanData,
    SpeechGroupSpanData,
    SpeechSpanData,
    TaskSpanData,
    TranscriptionSpanData,
    TurnSpanData,
)
from sandstream.tracing.spans import Span, TSpanData
from sandstream.tracing.traces import Trace

logger = logging.getLogger(__name__)

Parent = Trace | Span[Any] | None


def trace(
    workflow_name: str,
    trace_id: str | None = None,
    group_id: str | None = None,
    metadata: dict[str, Any] | None = None,
    tracing: TracingConfig | None = None,
    disabled: bool = False,
) -> Trace:
    """Create a trace that contains everything done in it: runs and your own spans.

    Args:
        workflow_name: The name of the trace.
        trace_id: The id of the trace; ``None`` makes a new one (:func:`gen_trace_id`).
        group_id: Connects several traces, for example those of one conversation.
        metadata: Additional data of the trace.
        tracing: Options of the exporter for this trace, such as its API key.
        disabled: Do not record the trace and everything in it.

    Returns:
        The trace, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.

    Raises:
        UserError: A value has a wrong type.

    Example:
        with trace("Order 4711", group_id="customer-17"):
            offer = await Runner.run(sales, "Make an offer.")
            await Runner.run(review, str(offer.final_output))
    """
    for name, value in (("workflow_name", workflow_name), ("trace_id", trace_id)):
        if value is not None and not isinstance(value, str):
            raise UserError(f"{name} must be a text, not {type(value).__name__}")
    check_tracing_config(tracing)
    provider = get_trace_provider()
    if provider.get_current_trace() is not None:
        logger.warning("a trace starts inside another trace; spans belong to the inner one")
    return provider.create_trace(
        name=workflow_name,
        trace_id=trace_id,
        group_id=group_id,
        metadata=metadata,
        tracing=tracing,
        disabled=disabled,
    )


def get_current_trace() -> Trace | None:
    """The trace that the running code belongs to."""
    return get_trace_provider().get_current_trace()


def get_current_span() -> Span[Any] | None:
    """The span that the running code belongs to: in a tool, that of its call."""
    return get_trace_provider().get_current_span()


def _span(data: TSpanData, span_id: str | None, parent: Parent, disabled: bool) -> Span[TSpanData]:
    return get_trace_provider().create_span(
        span_data=data, span_id=span_id, parent=parent, disabled=disabled
    )


def agent_span(
    name: str,
    handoffs: list[str] | None = None,
    tools: list[str] | None = None,
    output_type: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[AgentSpanData]:
    """A span for an agent's work. Outside a trace, spans are not recorded.

    Args:
        name: The name of the agent.
        handoffs: The names of the agents that it can hand over to.
        tools: The names of its tools.
        output_type: The name of the type of its output.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    data = AgentSpanData(name=name, handoffs=handoffs, tools=tools, output_type=output_type)
    return _span(data, span_id, parent, disabled)


def task_span(
    name: str,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[TaskSpanData]:
    """A span for one call of the runner.

    Args:
        name: The name of the task.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    return _span(TaskSpanData(name=name), span_id, parent, disabled)


def turn_span(
    turn: int,
    agent_name: str,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[TurnSpanData]:
    """A span for one turn of an agent.

    Args:
        turn: The number of the turn.
        agent_name: The name of the agent.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    return _span(TurnSpanData(turn=turn, agent_name=agent_name), span_id, parent, disabled)


def function_span(
    name: str,
    input: str | None = None,
    output: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[FunctionSpanData]:
    """A span for a function call.

    Args:
        name: The name of the function.
        input: The arguments.
        output: The result.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    data = FunctionSpanData(name=name, input=input, output=output)
    return _span(data, span_id, parent, disabled)


def generation_span(
    input: Sequence[Mapping[str, Any]] | None = None,
    output: Sequence[Mapping[str, Any]] | None = None,
    model: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[GenerationSpanData]:
    """A span for a model call.

    Args:
        input: The messages for the model.
        output: The messages of the model.
        model: The name of the model.
        model_config: The settings of the call.
        usage: The tokens of the call.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    data = GenerationSpanData(
        input=input, output=output, model=model, model_config=model_config, usage=usage
    )
    return _span(data, span_id, parent, disabled)


def response_span(
    response: Any | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[ResponseSpanData]:
    """A span for a response of the Responses API.

    Args:
        response: The response.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    return _span(ResponseSpanData(response=response), span_id, parent, disabled)


def handoff_span(
    from_agent: str | None = None,
    to_agent: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[HandoffSpanData]:
    """A span for a handoff from one agent to another.

    Args:
        from_agent: The name of the agent that hands over.
        to_agent: The name of the agent that continues.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    data = HandoffSpanData(from_agent=from_agent, to_agent=to_agent)
    return _span(data, span_id, parent, disabled)


def custom_span(
    name: str,
    data: dict[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[CustomSpanData]:
    """A span for your own work.

    Args:
        name: The name of the span.
        data: Additional data of the span.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.

    Example:
        with trace("Billing"), custom_span("load customers", {"count": 17}):
            customers = load_customers()
    """
    return _span(CustomSpanData(name=name, data=data or {}), span_id, parent, disabled)


def guardrail_span(
    name: str,
    triggered: bool = False,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[GuardrailSpanData]:
    """A span for the check of a guardrail.

    Args:
        name: The name of the guardrail.
        triggered: Whether it tripped.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    return _span(GuardrailSpanData(name=name, triggered=triggered), span_id, parent, disabled)


def transcription_span(
    model: str | None = None,
    input: str | None = None,
    input_format: str | None = "pcm",
    output: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[TranscriptionSpanData]:
    """A span for speech to text.

    Args:
        model: The name of the model.
        input: The audio as base64.
        input_format: The format of the audio.
        output: The text.
        model_config: The settings of the call.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    data = TranscriptionSpanData(
        input=input,
        input_format=input_format,
        output=output,
        model=model,
        model_config=model_config,
    )
    return _span(data, span_id, parent, disabled)


def speech_span(
    model: str | None = None,
    input: str | None = None,
    output: str | None = None,
    output_format: str | None = "pcm",
    model_config: Mapping[str, Any] | None = None,
    first_content_at: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[SpeechSpanData]:
    """A span for text to speech.

    Args:
        model: The name of the model.
        input: The text.
        output: The audio as base64.
        output_format: The format of the audio.
        model_config: The settings of the call.
        first_content_at: When the first audio arrived, in ISO 8601.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    data = SpeechSpanData(
        input=input,
        output=output,
        output_format=output_format,
        model=model,
        model_config=model_config,
        first_content_at=first_content_at,
    )
    return _span(data, span_id, parent, disabled)


def speech_group_span(
    input: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[SpeechGroupSpanData]:
    """A span for several pieces of speech that belong together.

    Args:
        input: The text.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    return _span(SpeechGroupSpanData(input=input), span_id, parent, disabled)


def mcp_tools_span(
    server: str | None = None,
    result: list[str] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[MCPListToolsSpanData]:
    """A span for listing the tools of an MCP server.

    Args:
        server: The name of the server.
        result: The names of the tools.
        span_id: The id of the span; ``None`` makes a new one.
        parent: The trace or span above it; ``None`` is the current span.
        disabled: Do not record the span.

    Returns:
        The span, not started yet: use it with ``with``, or call ``start()`` and ``finish()``.
    """
    return _span(MCPListToolsSpanData(server=server, result=result), span_id, parent, disabled)
