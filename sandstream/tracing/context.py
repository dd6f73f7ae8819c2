"""A trace around a run, if there is none yet."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from sandstream.tracing.config import TracingConfig
from sandstream.tracing.setup import get_trace_provider
from sandstream.tracing.traces import Trace


class TraceCtxManager:
    """Creates a trace if there is none, and ends it afterwards; a disabled one hides any other.

    Args:
        workflow_name: The name of the new trace.
        trace_id: The id of the new trace; ``None`` makes one.
        group_id: Connects several traces, for example those of one conversation.
        metadata: Additional data of the new trace.
        tracing: Options of the exporter for the new trace, such as its API key.
        disabled: Do not record anything, also if there is a trace already.
    """

    def __init__(
        self,
        workflow_name: str,
        trace_id: str | None,
        group_id: str | None,
        metadata: dict[str, Any] | None,
        tracing: TracingConfig | None,
        disabled: bool,
    ) -> None:
        self.trace: Trace | None = None
        self.workflow_name = workflow_name
        self.trace_id = trace_id
        self.group_id = group_id
        self.metadata = metadata
        self.tracing = tracing
        self.disabled = disabled

    def __enter__(self) -> TraceCtxManager:
        provider = get_trace_provider()
        if self.disabled or provider.get_current_trace() is None:
            self.trace = provider.create_trace(
                name=self.workflow_name,
                trace_id=self.trace_id,
                group_id=self.group_id,
                metadata=self.metadata,
                tracing=self.tracing,
                disabled=self.disabled,
            )
            self.trace.start(mark_as_current=True)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if self.trace is not None:
            self.trace.finish(reset_current=True)
