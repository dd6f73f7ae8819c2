"""The one trace provider of a process."""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandstream.tracing.provider import TraceProvider
    from sandstream.tracing.reporter import Reporter

_SHUTDOWN_S = 5.0
_lock = threading.RLock()
_provider: TraceProvider | None = None
_reporter: Reporter | None = None
_is_registered = False


def set_trace_provider(provider: TraceProvider) -> None:
    """Replace the provider that creates all traces and spans.

    Args:
        provider: The new provider.
    """
    global _provider
    with _lock:
        _provider = provider
        _register_shutdown()


def get_trace_provider() -> TraceProvider:
    """The provider of this process, created on first use."""
    global _provider
    if _provider is not None:
        return _provider
    with _lock:
        if _provider is None:
            from sandstream.tracing.provider import DefaultTraceProvider

            _provider = DefaultTraceProvider()
            _register_shutdown()
        return _provider


def reporter_here() -> Reporter:
    """The reporter of this process's own spans, whichever provider creates them."""
    from sandstream.tracing.reporter import Reporter

    global _reporter
    with _lock:
        if _reporter is None:
            _reporter = Reporter()
        return _reporter


def _register_shutdown() -> None:
    global _is_registered
    if not _is_registered:
        atexit.register(_shutdown)
        _is_registered = True


def _shutdown() -> None:
    from sandstream.tracing.provider import DefaultTraceProvider

    if isinstance(_provider, DefaultTraceProvider):
        _provider.shutdown(timeout=_SHUTDOWN_S)
    elif _provider is not None:
        _provider.shutdown()
