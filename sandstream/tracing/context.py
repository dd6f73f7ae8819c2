"""A trace around a run, if there is none yet."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from sandstream.tracing.config import TracingConfig
from sandstream.tracing.setup import get_trace_provider
from sandstream.tracing.traces import Trace


class TraceCtxManager:
    """Creates a trace if there is none, and ends it afterwards; a disabled one hides any other."""

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
