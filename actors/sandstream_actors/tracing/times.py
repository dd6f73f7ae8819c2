"""The server's time stamps as nanoseconds."""

from __future__ import annotations

import calendar
import functools
import time


def nanoseconds(stamp: str) -> int:
    """RFC 3339 in UTC, as the server writes it, since 1970; 0 for anything else."""
    seconds, _, rest = stamp.rstrip("Z").partition(".")
    try:
        return _seconds(seconds) * 1_000_000_000 + (int(rest.ljust(9, "0")[:9]) if rest else 0)
    except ValueError:
        return 0


@functools.lru_cache(maxsize=256)
def _seconds(text: str) -> int:
    """Cached: the events of a moment share it, and parsing a date is dear."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
