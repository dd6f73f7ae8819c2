"""Checks the timeouts and limits of a server."""

from __future__ import annotations

import math
from datetime import timedelta


def read_timeout_s(value: float | None) -> float | None:
    """``client_session_timeout_seconds``; ``None`` means "no limit" (0 is accepted for it too)."""
    name = "client_session_timeout_seconds"
    if value is None:
        return None
    _check_number(value, f"{name} must be a number of seconds or None.")
    if value == 0:
        return None
    if not _is_finite(value) or value < 0:
        raise ValueError(f"{name} must be zero or a positive finite value.")
    if value < timedelta.resolution.total_seconds():
        raise ValueError(f"{name} must be zero or at least one microsecond.")
    try:
        timedelta(seconds=value)
    except OverflowError as error:
        raise ValueError(f"{name} must fit in a datetime.timedelta.") from error
    return value


def check_backoff_max(value: float | None) -> None:
    name = "retry_backoff_seconds_max"
    if value is None:
        return
    _check_number(value, f"{name} must be a number of seconds or None.")
    if not _is_finite(value) or value < 0:
        raise ValueError(f"{name} must be a non-negative finite number of seconds or None.")


def check_max_pages(value: int | None) -> None:
    problem = "max_list_pages must be a positive integer or None."
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(problem)
    if value < 1:
        raise ValueError(problem)


def lifecycle_timeout_s(value: float | None, name: str) -> float | None:
    """A timeout for connecting or cleaning up; ``None`` for no limit."""
    if value is None:
        return None
    _check_number(value, f"{name} must be a positive number of seconds or None.")
    if not _is_finite(value) or value <= 0:
        raise ValueError(f"{name} must be a positive finite number of seconds or None.")
    return value


def backoff_s(base: float, maximum: float | None, taken: int) -> float:
    """The next pause after ``taken`` pauses: doubled each time, up to the maximum."""
    try:
        pause = math.ldexp(base, taken)
    except OverflowError:
        pause = math.copysign(math.inf, base)
    return pause if maximum is None else min(pause, maximum)


def _check_number(value: object, problem: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(problem)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
