"""The time axis of a timeline: where a moment stands, and which moments are marked.

A run that waited for a person for two days and worked for two seconds would be a dot on an even
axis. Long idle stretches are therefore drawn short and marked as such.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from sandstream._inspect.parts import Interval, union, without
from sandstream._inspect.timeline import Timeline

_LONG_GAP = 0.2
"""A share of the whole, from which on a gap can be drawn short."""
_WORTH_IT = 0.8
"""The share of the whole that such gaps must have together."""
_BREAK_SHARE = 0.12
_SECOND = 1_000_000_000
_STEPS_NS = [
    *(int(base * 10**power) for power in range(3, 9) for base in (1, 2, 5)),
    *(int(seconds * _SECOND) for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * 60 * _SECOND for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3600 * _SECOND for hours in (1, 2, 3, 6, 12)),
    *(days * 86_400 * _SECOND for days in (1, 2, 5, 10, 20, 50, 100)),
]


class Stretch(msgspec.Struct, frozen=True):
    """A part of the axis that is even."""

    start_ns: int
    end_ns: int
    left: float
    right: float
    """Where it is drawn, as shares of the width."""
    is_break: bool = False


class Tick(msgspec.Struct, frozen=True):
    share: float
    label: str


class TimeAxis(msgspec.Struct, frozen=True):
    """Stretches from left to right, without gaps."""

    stretches: list[Stretch]

    @property
    def start_ns(self) -> int:
        return self.stretches[0].start_ns

    @property
    def breaks(self) -> list[Stretch]:
        return [it for it in self.stretches if it.is_break]

    def share(self, time_ns: int) -> float:
        """Where a moment stands, from 0 to 1; what is outside stands at the edge."""
        place = bisect_right(self.stretches, time_ns, key=lambda it: it.start_ns) - 1
        it = self.stretches[max(0, place)]
        length = it.end_ns - it.start_ns
        within = (time_ns - it.start_ns) / length if length else 0.0
        return it.left + (it.right - it.left) * min(1.0, max(0.0, within))

    def ticks(self, most: int) -> list[Tick]:
        """About so many marked moments at most, at round times since the start; behind a break
        since its end, with a plus.
        """
        even = [it for it in self.stretches if not it.is_break]
        step = _step(sum(it.end_ns - it.start_ns for it in even), max(1, most))
        found: list[Tick] = []
        for it in even:
            is_first = it is self.stretches[0]
            for since in range(0 if is_first else step, it.end_ns - it.start_ns + 1, step):
                label = tick_label(since, step)
                share = self.share(it.start_ns + since)
                found.append(Tick(share, label if is_first else f"+{label}"))
        return found


def axis_of(timeline: Timeline) -> TimeAxis:
    """The axis on which everything is seen."""
    start, end = timeline.start_ns, timeline.end_ns
    busy = (
        (part.start_ns, part.end_ns)
        for row in timeline.rows
        if not row.depth
        for part in row.parts
        if part.kind in ("work", "queued", "lost")
    )
    return time_axis(start, end, _long_gaps(start, end, busy))


def _long_gaps(start: int, end: int, busy: Iterable[Interval]) -> list[Interval]:
    whole = end - start
    gaps = [
        gap for gap in without([(start, end)], union(busy)) if gap[1] - gap[0] > _LONG_GAP * whole
    ]
    if sum(gap[1] - gap[0] for gap in gaps) <= _WORTH_IT * whole:
        return []
    return gaps


def time_axis(start_ns: int, end_ns: int, breaks: Sequence[Interval]) -> TimeAxis:
    """An axis on which ``breaks`` are drawn short and the rest is even."""
    even = list(without([(start_ns, end_ns)], union(breaks)))
    length = sum(end - start for start, end in even)
    room = 1.0 - _BREAK_SHARE * len(breaks) if length else 1.0
    stretches: list[Stretch] = []
    left = 0.0
    pieces = [*((it, False) for it in even), *((it, True) for it in breaks)]
    for (start, end), is_break in sorted(pieces):
        share = _BREAK_SHARE if is_break else room * (end - start) / length
        right = min(1.0, left + (share if length else 1.0 / len(pieces)))
        stretches.append(Stretch(start, end, left, right, is_break))
        left = right
    return TimeAxis(stretches or [Stretch(start_ns, start_ns, 0.0, 1.0)])


def _step(length_ns: int, most: int) -> int:
    fitting = (step for step in _STEPS_NS if length_ns <= step * most)
    return next(fitting, max(1, length_ns // most))


def tick_label(since_ns: int, step_ns: int) -> str:
    """A time since the start, as exactly as the steps between the ticks need it."""
    if not since_ns:
        return "0"
    seconds, rest = divmod(since_ns, _SECOND)
    if seconds >= 86_400 and step_ns >= 3600 * _SECOND:
        days, hours = divmod(seconds // 3600, 24)
        return f"{days}d{hours}h" if hours else f"{days}d"
    if seconds >= 3600 and step_ns >= 60 * _SECOND:
        hours, minutes = divmod(seconds // 60, 60)
        return f"{hours}h{minutes:02d}m" if minutes else f"{hours}h"
    if seconds >= 60 and step_ns >= _SECOND:
        minutes, left = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{left:02d}s" if left else f"{minutes}m"
        return f"{hours}h{text}" if hours else text
    if step_ns >= _SECOND:
        return f"{seconds}s"
    if step_ns >= 100_000_000:
        return f"{since_ns / _SECOND:.1f}s"
    if step_ns >= 1_000_000:
        return f"{since_ns // 1_000_000}ms" if not seconds else f"{since_ns / _SECOND:.3f}s"
    return f"{since_ns / 1_000_000:g}ms" if not seconds else f"{seconds + rest / _SECOND:.6f}s"
