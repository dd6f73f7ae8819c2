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

    It is not started yet: use it with ``with``, or call ``start()`` and ``finish()``. Without a
    ``trace_id`` it gets a new one (:func:`gen_trace_id`). ``group_id`` links related traces, for
    example those of one conversation. A ``disabled`` trace and everything in it is not recorded.
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
    """An agent's work. Like all spans here, it is placed below ``parent`` or the current span, is
    not started yet, and is not recorded outside a trace.
    """
    data = AgentSpanData(name=name, handoffs=handoffs, tools=tools, output_type=output_type)
    return _span(data, span_id, parent, disabled)


def task_span(
    name: str,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[TaskSpanData]:
    """One call of the runner."""
    return _span(TaskSpanData(name=name), span_id, parent, disabled)


def turn_span(
    turn: int,
    agent_name: str,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[TurnSpanData]:
    """One turn of an agent."""
    return _span(TurnSpanData(turn=turn, agent_name=agent_name), span_id, parent, disabled)


def function_span(
    name: str,
    input: str | None = None,
    output: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[FunctionSpanData]:
    """A function call."""
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
    """A model call, with its input and output messages."""
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
    """A response of the Responses API."""
    return _span(ResponseSpanData(response=response), span_id, parent, disabled)


def handoff_span(
    from_agent: str | None = None,
    to_agent: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[HandoffSpanData]:
    """A handoff from one agent to another."""
    data = HandoffSpanData(from_agent=from_agent, to_agent=to_agent)
    return _span(data, span_id, parent, disabled)


def custom_span(
    name: str,
    data: dict[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[CustomSpanData]:
    """Anything worth measuring, with ``data`` about it."""
    return _span(CustomSpanData(name=name, data=data or {}), span_id, parent, disabled)


def guardrail_span(
    name: str,
    triggered: bool = False,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[GuardrailSpanData]:
    """The check of a guardrail."""
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
    """Speech to text; ``input`` is base64."""
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
    """Text to speech; ``output`` is base64."""
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
    """Several pieces of speech that belong together."""
    return _span(SpeechGroupSpanData(input=input), span_id, parent, disabled)


def mcp_tools_span(
    server: str | None = None,
    result: list[str] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[MCPListToolsSpanData]:
    """Listing the tools of an MCP server."""
    return _span(MCPListToolsSpanData(server=server, result=result), span_id, parent, disabled)
