"""Faults of the connection: which are worth waiting out, and which are not."""

from __future__ import annotations

from typing import NamedTuple

from sandstream_bus.errors import BusError

REFUSED_PATIENCE_S = 2.0
"""How long a first connection waits for a server that is not there yet."""


class Trouble(NamedTuple):
    """A fault outside that this process waits out."""

    error: BusError
    since: float
    """By the monotonic clock."""


def is_refusal(error: Exception) -> bool:
    text = str(error).lower()
    return "authorization" in text or "authentication" in text


def is_hopeless(error: Exception, after_s: float) -> bool:
    """Is it in vain to try to connect once more?"""
    if is_refusal(error):
        return True
    refused = isinstance(error, OSError) and not isinstance(error, TimeoutError)
    return refused and after_s > REFUSED_PATIENCE_S
