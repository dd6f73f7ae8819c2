"""Times in nanoseconds: timestamps of the server, and durations that processes report."""

from __future__ import annotations

import calendar
import functools
import time
from typing import Final

MS: Final = 1_000_000
LATEST_NS: Final = 2**63 - 1


def nanoseconds(stamp: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time in UTC, as the server writes it; 0 for anything
    else. Capped at what stores and protocols can carry.
    """
    seconds, _, rest = stamp.rstrip("Z").partition(".")
    try:
        found = _seconds(seconds) * 1_000_000_000 + (int(rest.ljust(9, "0")[:9]) if rest else 0)
    except ValueError:
        return 0
    return max(0, min(found, LATEST_NS))


@functools.lru_cache(maxsize=256)
def _seconds(text: str) -> int:
    """Cached: events of the same second share it, and parsing a date is expensive."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def began_ns(now: int, duration_ms: int, earliest_ns: int) -> int:
    """The start of work that ended now, from its reported duration."""
    return min(max(now - duration_ms * MS, earliest_ns), now)
