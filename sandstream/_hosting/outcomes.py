"""Results and failures of the user's code, as messages for the bus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.messages import CallFinished, CallRequested, ErrorInfo
from sandstream_bus.wire.specs import NO_JSON
from sandstream_bus.wire.subjects import RunId

from sandstream._hosting.hosted_run import HostedRun
from sandstream._surface.outcomes import error_info


@dataclass(frozen=True)
class Outcome:
    """A result with additional fields of :class:`CallFinished`."""

    value: Any
    more: dict[str, Any] = field(default_factory=dict)


class CallFailed(Exception):
    """User code raised; carries additional fields of :class:`CallFinished`."""

    def __init__(self, error: BaseException, **more: Any) -> None:
        super().__init__(error_text(error))
        self.error = error
        self.more = more


def encode(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def failure(
    hosted: HostedRun, run: RunId, call: CallRequested, error: BaseException
) -> CallFinished:
    """The outcome of a call whose user code raised. It ends the run."""
    raised = error.error if isinstance(error, CallFailed) else error
    more = error.more if isinstance(error, CallFailed) else {}
    return finished(call, error=kept(hosted, run, call, raised), **more)


def kept(hosted: HostedRun, run: RunId, call: CallRequested, error: BaseException) -> ErrorInfo:
    """The exception as data. A caller in this process gets the original (see ``original``)."""
    raised_by = f"{run}/{call.call}"
    hosted.exceptions[raised_by] = error
    return msgspec.structs.replace(error_info(error), raised_by=raised_by)


def original(hosted: HostedRun, error: ErrorInfo) -> BaseException | None:
    """The exception behind an error, if user code raised it in this process."""
    return hosted.exceptions.get(error.raised_by)


def finished(
    call: CallRequested, *, output: Raw = NO_JSON, error: ErrorInfo | None = None, **more: Any
) -> CallFinished:
    return CallFinished(
        call=call.call, kind=call.kind, turn=call.turn, output=output, error=error, **more
    )
