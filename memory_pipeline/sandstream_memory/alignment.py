"""Align two lists: find which elements correspond.

Elements that are unique in both lists are matched first, as the longest sequence in common order;
then the ranges between them are aligned in the same way. So frequent lines (such as blank ones) do
not decide, and the cost grows little faster than the lists, for any content.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence

_MAX_CELLS = 40_000
"""Non-unique elements are compared pairwise if the product of the lengths is at most this."""

Pair = tuple[int, int]


def matches(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Pair]:
    """Pairs of indexes of equal elements; both indexes increase."""
    found: list[Pair] = []
    open_ranges = [(0, len(one), 0, len(other))]
    while open_ranges:
        start, end, other_start, other_end = open_ranges.pop()
        while start < end and other_start < other_end and one[start] == other[other_start]:
            found.append((start, other_start))
            start, other_start = start + 1, other_start + 1
        while start < end and other_start < other_end and one[end - 1] == other[other_end - 1]:
            end, other_end = end - 1, other_end - 1
            found.append((end, other_end))
        if start == end or other_start == other_end:
            continue
        anchors = _anchors(one[start:end], other[other_start:other_end])
        if not anchors:
            inner = _longest_common(one[start:end], other[other_start:other_end])
            found += [(start + a, other_start + b) for a, b in inner]
            continue
        low = (start, other_start)
        for a, b in [*anchors, (end - start, other_end - other_start)]:
            open_ranges.append((low[0], start + a, low[1], other_start + b))
            low = (start + a, other_start + b)
    return sorted(set(found))


def _anchors(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Pair]:
    """The longest increasing sequence of elements that occur exactly once in each list."""
    counts, other_counts = Counter(one), Counter(other)
    places = {each: at for at, each in enumerate(other)}
    common = [
        (at, places[each])
        for at, each in enumerate(one)
        if counts[each] == 1 and other_counts.get(each) == 1
    ]
    ends: list[int] = []
    """For each length, the lowest last index of a sequence of that length."""
    run_ends: list[int] = []
    before: list[int] = []
    for number, (_, b) in enumerate(common):
        length = bisect_left(ends, b)
        before.append(run_ends[length - 1] if length else -1)
        ends[length : length + 1] = [b]
        run_ends[length : length + 1] = [number]
    run: list[Pair] = []
    number = run_ends[-1] if run_ends else -1
    while number >= 0:
        run.append(common[number])
        number = before[number]
    return run[::-1]


def _longest_common(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Pair]:
    """The longest common subsequence of short lists; empty for longer ones."""
    if len(one) * len(other) > _MAX_CELLS:
        return []
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for a in range(len(one) - 1, -1, -1):
        for b in range(len(other) - 1, -1, -1):
            if one[a] == other[b]:
                lengths[a][b] = lengths[a + 1][b + 1] + 1
            else:
                lengths[a][b] = max(lengths[a + 1][b], lengths[a][b + 1])
    found: list[Pair] = []
    a = b = 0
    while a < len(one) and b < len(other):
        if one[a] == other[b]:
            found.append((a, b))
            a, b = a + 1, b + 1
        elif lengths[a + 1][b] >= lengths[a][b + 1]:
            a += 1
        else:
            b += 1
    return found
