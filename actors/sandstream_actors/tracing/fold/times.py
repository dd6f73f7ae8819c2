"""Times in nanoseconds: the server's stamps, and what others say of how long they took."""

from __future__ import annotations

import calendar
import functools
import time
from typing import Final

MS: Final = 1_000_000
LATEST_NS: Final = 2**63 - 1


def nanoseconds(stamp: str) -> int:
    """RFC 3339 in UTC, as the server writes it, since 1970; 0 for anything else. The latest is
    what stores and protocols can carry.
    """
    seconds, _, rest = stamp.rstrip("Z").partition(".")
    try:
        found = _seconds(seconds) * 1_000_000_000 + (int(rest.ljust(9, "0")[:9]) if rest else 0)
    except ValueError:
        return 0
    return max(0, min(found, LATEST_NS))


@functools.lru_cache(maxsize=256)
def _seconds(text: str) -> int:
    """Cached: the events of a moment share it, and parsing a date is dear."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def began_ns(now: int, duration_ms: int, earliest_ns: int) -> int:
    """When something began that took so long until now, as whoever did it says."""
    return min(max(now - duration_ms * MS, earliest_ns), now)
