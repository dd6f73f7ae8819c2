"""What goes back over the bus for a call of the user's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.messages import CallFinished, CallRequested, ErrorInfo
from sandstream_bus.specs import NO_JSON

from sandstream.hosting.hosted_run import HostedRun
from sandstream.outcomes import error_info


@dataclass(frozen=True)
class Outcome:
    """A result with more than its value: fields of :class:`CallFinished`."""

    value: Any
    more: dict[str, Any] = field(default_factory=dict)


class CallFailed(Exception):
    """User code raised, and there is more to tell than that: fields of :class:`CallFinished`."""

    def __init__(self, error: Exception, **more: Any) -> None:
        super().__init__(str(error))
        self.error = error
        self.more = more


def encode(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def failure(hosted: HostedRun, call: CallRequested, error: Exception) -> CallFinished:
    """User code raised: the run ends with that, and a caller in this process gets the original."""
    raised = error.error if isinstance(error, CallFailed) else error
    more = error.more if isinstance(error, CallFailed) else {}
    info = error_info(raised)
    hosted.exceptions[info.message] = raised
    return finished(call, error=info, **more)


def finished(
    call: CallRequested, *, output: Raw = NO_JSON, error: ErrorInfo | None = None, **more: Any
) -> CallFinished:
    return CallFinished(
        call=call.call, kind=call.kind, turn=call.turn, output=output, error=error, **more
    )
