"""Whether a run is traced, decided where it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandstream.tracing.ids import NO_OP
from sandstream.tracing.provider import DefaultTraceProvider
from sandstream.tracing.setup import get_trace_provider

if TYPE_CHECKING:
    from sandstream.run_config import RunConfig


def is_traced(config: RunConfig) -> bool:
    """Whether a run that starts here and now may be traced."""
    if config.tracing_disabled:
        return False
    provider = get_trace_provider()
    if isinstance(provider, DefaultTraceProvider) and provider.is_disabled:
        return False
    current = provider.get_current_trace()
    return current is None or current.trace_id != NO_OP
