"""Why an export failed. OpenTelemetry's exporters only tell their log, and tell it every time.

While one of ours exports, what they log is caught: it becomes the reason that is told once, and it
says whether trying again can help.
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
"""Refusals by HTTP that are about the moment, or about a setting that somebody will mend: a key, an
address. What was asked is not to blame, so it waits.
"""
_FOR_GOOD: Final = frozenset(
    {
        "FAILED_PRECONDITION",
        "INVALID_ARGUMENT",
        "OUT_OF_RANGE",
        "RESOURCE_EXHAUSTED",
    }
)
"""Refusals by gRPC that will come again. RESOURCE_EXHAUSTED is a request that is too big; the
exporter itself waits and repeats where it means that there were too many."""
_NOT_SENT: Final = ("Failed to encode", "Dropping")
"""How the log of an exporter begins that has not even tried."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    is_for_good: bool = False
    """The same request will be refused again."""
    rejected: int = 0
    """It was accepted but for so many spans, which are not wanted again."""


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
    """What OpenTelemetry logs in this context while this lasts, instead of in the log."""
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
    """Some of these loggers have a filter that hides what was said before; ours has to hear it."""
    if _catch not in logger.filters:
        logger.filters.insert(0, _catch)


def failure_of(records: list[logging.LogRecord]) -> Failure:
    """What an exporter that has failed had to say."""
    if not records:
        return Failure(reason="the exporter does not say why")
    return Failure(
        reason=_reason(records),
        is_for_good=any(_is_for_good(record) for record in records),
    )


def _reason(records: list[logging.LogRecord]) -> str:
    """The last word; with the one before, if it only says that there was no time left."""
    texts = list(dict.fromkeys(short(record.getMessage()) for record in records))
    return texts[-1] if "code" in texts[-1] else " ".join(texts[-2:])


def _is_for_good(record: logging.LogRecord) -> bool:
    if str(record.msg).startswith(_NOT_SENT):
        return True
    arguments = record.args if isinstance(record.args, tuple) else ()
    return any(_is_refusal(each) for each in arguments)


def _is_refusal(argument: object) -> bool:
    """Is it a status, of HTTP (a number) or of gRPC (a member of an enum), that will not change?"""
    if isinstance(argument, int):
        return 400 <= argument < 500 and argument not in _PASSING
    return type(argument).__name__ == "StatusCode" and getattr(argument, "name", "") in _FOR_GOOD
