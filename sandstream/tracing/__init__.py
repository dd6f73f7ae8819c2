"""Tracing for programs: their own spans, and processors that see everything that runs do.

Nothing is sent to a backend unless a program adds a processor that does so
(``sandstream.tracing.processors``). The log of a run records what it does in any case; see
``docs/tracing.md``.
"""

from __future__ import annotations

from sandstream.tracing.config import TracingConfig
from sandstream.tracing.context import TraceCtxManager
from sandstream.tracing.create import (
    agent_span,
    custom_span,
    function_span,
    generation_span,
    get_current_span,
    get_current_trace,
    guardrail_span,
    handoff_span,
    mcp_tools_span,
    response_span,
    speech_group_span,
    speech_span,
    task_span,
    trace,
    transcription_span,
    turn_span,
)
from sandstream.tracing.processor_interface import TracingExporter, TracingProcessor
from sandstream.tracing.provider import TraceProvider
from sandstream.tracing.setup import get_trace_provider, set_trace_provider
from sandstream.tracing.span_data import (
    AgentSpanData,
    CustomSpanData,
    FunctionSpanData,
    GenerationSpanData,
    GuardrailSpanData,
    HandoffSpanData,
    MCPListToolsSpanData,
    ResponseSpanData,
    SpanData,
    SpeechGroupSpanData,
    SpeechSpanData,
    TaskSpanData,
    TranscriptionSpanData,
    TurnSpanData,
)
from sandstream.tracing.spans import Span, SpanError
from sandstream.tracing.traces import Trace
from sandstream.tracing.util import gen_span_id, gen_trace_id

__all__ = [
    "AgentSpanData",
    "CustomSpanData",
    "FunctionSpanData",
    "GenerationSpanData",
    "GuardrailSpanData",
    "HandoffSpanData",
    "MCPListToolsSpanData",
    "ResponseSpanData",
    "Span",
    "SpanData",
    "SpanError",
    "SpeechGroupSpanData",
    "SpeechSpanData",
    "TaskSpanData",
    "Trace",
    "TraceCtxManager",
    "TraceProvider",
    "TracingConfig",
    "TracingExporter",
    "TracingProcessor",
    "TranscriptionSpanData",
    "TurnSpanData",
    "add_trace_processor",
    "agent_span",
    "custom_span",
    "flush_traces",
    "function_span",
    "gen_span_id",
    "gen_trace_id",
    "generation_span",
    "get_current_span",
    "get_current_trace",
    "get_trace_provider",
    "guardrail_span",
    "handoff_span",
    "mcp_tools_span",
    "response_span",
    "set_trace_processors",
    "set_trace_provider",
    "set_tracing_disabled",
    "set_tracing_export_api_key",
    "speech_group_span",
    "speech_span",
    "task_span",
    "trace",
    "transcription_span",
    "turn_span",
]


def add_trace_processor(span_processor: TracingProcessor) -> None:
    """Add a processor that receives all traces and spans from now on.

    Args:
        span_processor: The processor.

    Raises:
        UserError: It lacks a method of :class:`TracingProcessor`.

    Example:
        add_trace_processor(BatchTraceProcessor(ConsoleSpanExporter()))
    """
    get_trace_provider().register_processor(span_processor)


def set_trace_processors(processors: list[TracingProcessor]) -> None:
    """Replace all processors. The reports to the bus are not affected.

    Args:
        processors: The new processors; an empty list removes all.

    Raises:
        UserError: One of them lacks a method of :class:`TracingProcessor`.
    """
    get_trace_provider().set_processors(processors)


def set_tracing_disabled(disabled: bool) -> None:
    """Disable or enable tracing for this program. No part of the system traces its runs while it is
    disabled.

    Args:
        disabled: Whether to disable it.
    """
    get_trace_provider().set_disabled(disabled)


def set_tracing_export_api_key(api_key: str) -> None:
    """Set the key for OpenAI's trace endpoint, for a program that sends its traces there (see
    ``sandstream.tracing.processors``).

    Args:
        api_key: The key, instead of ``OPENAI_API_KEY``.
    """
    from sandstream.tracing.processors import default_exporter

    default_exporter().set_api_key(api_key)


def flush_traces() -> None:
    """Send everything that processors hold, and the spans that are to be reported to the bus.

    On the event loop of the runs, the reports are sent as soon as possible; elsewhere this call
    waits for them.
    """
    get_trace_provider().force_flush()
