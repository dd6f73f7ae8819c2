"""What a run that forbids its contents also keeps to itself: the words of its failures.

A tool's exception, a model's refusal and a run's end quote what was said. That something failed,
and what kind of failure it was, may be told.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.messages import CallFinished, ErrorInfo, ModelDeferred, RunDone, RunEvent


def without_words(event: RunEvent) -> RunEvent:
    """The event, its failure without a message."""
    match event:
        case ModelDeferred():
            return msgspec.structs.replace(event, error=_silent(event.error))
        case CallFinished() | RunDone() if event.error is not None:
            return msgspec.structs.replace(event, error=_silent(event.error))
        case _:
            return event


def _silent(error: ErrorInfo) -> ErrorInfo:
    return msgspec.structs.replace(error, message="")
