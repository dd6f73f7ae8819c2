"""Events without their error messages, for traces without contents.

The errors of tools, models and runs quote contents. That something failed, and the kind of failure,
may be shown.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.wire.messages import CallFinished, ErrorInfo, ModelDeferred, RunDone, RunEvent

_TOLD = ("status", "kind", "duration_ms")
"""The error data that the span of a failed model call needs."""


def without_words(event: RunEvent) -> RunEvent:
    """The event, its failure without a message and what else is said of it."""
    if isinstance(event, ModelDeferred | CallFinished | RunDone) and event.error is not None:
        return msgspec.structs.replace(event, error=_silent(event.error))
    return event


def _silent(error: ErrorInfo) -> ErrorInfo:
    data = {key: error.data[key] for key in _TOLD if key in error.data}
    return msgspec.structs.replace(error, message="", data=data)
