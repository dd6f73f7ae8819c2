"""The parts of a bar: what was done or waited for, from when to when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

PartKind = Literal["queued", "lost", "work", "person", "rate_limit"]
"""What the time was spent on: waiting in a queue, in a process that was lost, working, waiting for
a person's answer, or waiting for a rate limit.
"""
STRONGEST_FIRST: tuple[PartKind, ...] = ("work", "lost", "rate_limit", "person", "queued")
"""The order of precedence: a bar shows the first of the kinds that overlap below it."""

Interval = tuple[int, int]


class Part(msgspec.Struct, frozen=True):
    """Never empty and never backwards, except for a moment: then both times are the same."""

    kind: PartKind
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time without overlaps, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def without(intervals: Sequence[Interval], taken: Sequence[Interval]) -> Iterator[Interval]:
    """What is left of ``intervals`` outside of ``taken``; both are unions."""
    place = 0
    for start, end in intervals:
        while place < len(taken) and taken[place][1] <= start:
            place += 1
        at = place
        while at < len(taken) and taken[at][0] < end:
            if taken[at][0] > start:
                yield (start, taken[at][0])
            start = max(start, taken[at][1])
            at += 1
        if start < end:
            yield (start, end)


def layered(start_ns: int, end_ns: int, below: dict[PartKind, list[Interval]]) -> list[Part]:
    """A bar from ``start_ns`` to ``end_ns`` that shows the kinds of the intervals below it. Time
    without an interval is work: a process decides what comes next.
    """
    parts: list[Part] = []
    whole: list[Interval] = [(start_ns, end_ns)]
    taken: list[Interval] = []
    for kind in STRONGEST_FIRST:
        if kind != "work":
            shown = list(without(_within(below.get(kind, []), start_ns, end_ns), taken))
            parts.extend(Part(kind, *interval) for interval in shown)
        taken = union([*taken, *below.get(kind, [])])
    waits = union((part.start_ns, part.end_ns) for part in parts)
    parts.extend(Part("work", *interval) for interval in without(whole, waits))
    return sorted(parts, key=lambda part: part.start_ns) or [Part("work", start_ns, end_ns)]


def overlaid(whole: Part, lost: Iterable[Interval]) -> list[Part]:
    """A part, with what was lost within it."""
    shown = _within(lost, whole.start_ns, whole.end_ns)
    parts = [Part("lost", *interval) for interval in shown]
    parts += [Part(whole.kind, *it) for it in without([(whole.start_ns, whole.end_ns)], shown)]
    return sorted(parts, key=lambda part: part.start_ns) or [whole]


def _within(intervals: Iterable[Interval], start_ns: int, end_ns: int) -> list[Interval]:
    return union(
        (max(start, start_ns), min(end, end_ns))
        for start, end in intervals
        if start < end_ns and end > start_ns
    )
