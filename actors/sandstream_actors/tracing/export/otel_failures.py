"""Why an export failed. OpenTelemetry's exporters only log it, and they do so every time.

While one of ours exports, the log records are caught. They give the reason, which is logged once,
and show whether a retry can help.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

import msgspec

from sandstream_actors.tracing.export.otlp_answers import short

_LOGGERS: Final = "opentelemetry."
_PASSING: Final = frozenset({401, 403, 404, 405, 407, 408, 429})
"""HTTP refusals that are temporary, or due to a setting that an operator will fix (a key, an
address). The request is not at fault, so it waits.
"""
_FOR_GOOD: Final = frozenset(
    {
        "FAILED_PRECONDITION",
        "INVALID_ARGUMENT",
        "OUT_OF_RANGE",
        "RESOURCE_EXHAUSTED",
    }
)
"""gRPC refusals that a retry cannot change. RESOURCE_EXHAUSTED means a request that is too big; if
it means too many requests, the exporter itself waits and repeats."""
_NOT_SENT: Final = ("Failed to encode", "Dropping")
"""How the log record of an exporter begins that did not even try to send."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    is_for_good: bool = False
    """The same request would be refused again."""
    rejected: int = 0
    """The request was accepted except for this many spans, which must not be sent again."""


_caught: ContextVar[list[logging.LogRecord] | None] = ContextVar("caught_otel_logs", default=None)


class _Catch(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        records = _caught.get()
        if records is None:
            return True
        records.append(record)
        return False


_catch = _Catch()


@contextlib.contextmanager
def caught_logs() -> Iterator[list[logging.LogRecord]]:
    """Collect what OpenTelemetry logs in this context, instead of logging it."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(_LOGGERS):
            _listen_first(logging.getLogger(name))
    records: list[logging.LogRecord] = []
    token = _caught.set(records)
    try:
        yield records
    finally:
        _caught.reset(token)


def _listen_first(logger: logging.Logger) -> None:
    """Insert our filter first: some of these loggers have a filter that hides repeated records."""
    if _catch not in logger.filters:
        logger.filters.insert(0, _catch)


def failure_of(records: list[logging.LogRecord]) -> Failure:
    """The failure that an exporter logged."""
    if not records:
        return Failure(reason="the exporter does not say why")
    return Failure(
        reason=_reason(records),
        is_for_good=any(_is_for_good(record) for record in records),
    )


def _reason(records: list[logging.LogRecord]) -> str:
    """The last message; with the one before it, if the last only reports a timeout."""
    texts = list(dict.fromkeys(short(record.getMessage()) for record in records))
    return texts[-1] if "code" in texts[-1] else " ".join(texts[-2:])


def _is_for_good(record: logging.LogRecord) -> bool:
    if str(record.msg).startswith(_NOT_SENT):
        return True
    arguments = record.args if isinstance(record.args, tuple) else ()
    return any(_is_refusal(each) for each in arguments)


def _is_refusal(argument: object) -> bool:
    """Whether it is a permanent refusal: an HTTP status (number) or a gRPC status (enum member)."""
    if isinstance(argument, int):
        return 400 <= argument < 500 and argument not in _PASSING
    return type(argument).__name__ == "StatusCode" and getattr(argument, "name", "") in _FOR_GOOD
