"""Which rows of a timeline are shown where there is no room for all of them.

Many equal rows at the same time become one group, and a very long timeline is shown without its
middle. Nothing is lost in silence: groups and gaps say how much they stand for, and what failed is
always shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

import msgspec

from sandstream._inspect.timeline import Row

GROUPED_FROM = 13
"""So many equal rows at the same time are one group."""
MOST_ENTRIES = 200
_HEAD_SHARE = 0.6
_MOST_FAILED = 10
"""So many failed rows are shown in a group or a gap; the others are counted."""


class Group(msgspec.Struct, kw_only=True):
    """Equal rows below the same one that overlap in time."""

    depth: int
    rows: list[Row]
    input_tokens: int = 0
    output_tokens: int = 0
    """Of all that is below."""
    failed: int = 0
    retried: int = 0
    """Those in which something took more than one attempt or request."""

    @property
    def start_ns(self) -> int:
        return min(row.start_ns for row in self.rows)

    @property
    def end_ns(self) -> int:
        return max(row.end_ns for row in self.rows)

    @property
    def shortest_ns(self) -> int:
        return min(row.took_ns for row in self.rows)

    @property
    def median_ns(self) -> int:
        return median_low(row.took_ns for row in self.rows)

    @property
    def longest_ns(self) -> int:
        return max(row.took_ns for row in self.rows)


class Gap(msgspec.Struct, kw_only=True):
    """Rows that are left out."""

    depth: int
    count: int
    failed: int = 0
    start_ns: int = 0
    end_ns: int = 0


Entry = Row | Group | Gap


def entries(rows: Sequence[Row], *, most: int = MOST_ENTRIES) -> list[Entry]:
    """What is shown of the rows, in their order."""
    return _bounded(_grouped(rows), most)


# --- groups ---------------------------------------------------------------------------------------


def _grouped(rows: Sequence[Row]) -> list[Entry]:
    ends = _ends_of_subtrees(rows)
    leaders = _clusters(rows)
    members = {id(row) for cluster in leaders.values() for row in cluster}
    shown: list[Entry] = []
    place = 0
    while place < len(rows):
        row = rows[place]
        if id(row) not in members:
            shown.append(row)
            place += 1
            continue
        if cluster := leaders.get(id(row)):
            shown.extend(_group(cluster, rows, ends))
        place = ends[id(row)][1]
    return shown


def _group(
    cluster: list[Row], rows: Sequence[Row], ends: dict[int, tuple[int, int]]
) -> list[Entry]:
    """A group, and below it those of its rows in which something failed."""
    group = Group(depth=cluster[0].depth, rows=cluster)
    failures: list[list[Row]] = []
    for member in cluster:
        start, end = ends[id(member)]
        subtree = rows[start:end]
        chats = [row for row in subtree if row.operation == "chat"]
        group.input_tokens += sum(row.input_tokens for row in chats)
        group.output_tokens += sum(row.output_tokens for row in chats)
        group.retried += any(row.attempts > 1 or row.retries for row in subtree)
        if any(row.is_failed for row in subtree):
            failures.append(list(subtree))
    group.failed = len(failures)
    shown: list[Entry] = [group]
    for subtree in failures[:_MOST_FAILED]:
        shown.extend(msgspec.structs.replace(row, depth=row.depth + 1) for row in subtree)
    if left_out := failures[_MOST_FAILED:]:
        gap = _gap([row for subtree in left_out for row in subtree])
        shown.append(msgspec.structs.replace(gap, depth=gap.depth + 1))
    return shown


def _clusters(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """Equal siblings that overlap, by the first of them; only where they are many."""
    siblings: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        siblings.setdefault((row.parent_id, row.operation, row.label), []).append(row)
    found: dict[int, list[Row]] = {}
    for equal in siblings.values():
        for cluster in _overlapping(equal):
            if len(cluster) >= GROUPED_FROM:
                found[id(cluster[0])] = cluster
    return found


def _overlapping(equal: Sequence[Row]) -> list[list[Row]]:
    clusters: list[list[Row]] = []
    end = 0
    for row in sorted(equal, key=lambda it: it.start_ns):
        if clusters and row.start_ns < end:
            clusters[-1].append(row)
        else:
            clusters.append([row])
            end = row.end_ns
        end = max(end, row.end_ns)
    in_order = {id(row): number for number, row in enumerate(equal)}
    return [sorted(cluster, key=lambda it: in_order[id(it)]) for cluster in clusters]


def _ends_of_subtrees(rows: Sequence[Row]) -> dict[int, tuple[int, int]]:
    """Where each row and all that is below it stand in the list."""
    ends: dict[int, tuple[int, int]] = {}
    opened: list[tuple[int, int]] = []
    for place, row in enumerate(rows):
        while opened and rows[opened[-1][0]].depth >= row.depth:
            start = opened.pop()[0]
            ends[id(rows[start])] = (start, place)
        opened.append((place, row.depth))
    for start, _ in opened:
        ends[id(rows[start])] = (start, len(rows))
    return ends


# --- bounds ---------------------------------------------------------------------------------------


def _bounded(shown: list[Entry], most: int) -> list[Entry]:
    """The first and the last entries; of those between what failed, and how many they are."""
    if len(shown) <= most:
        return shown
    head = int(most * _HEAD_SHARE)
    tail = most - head
    first, between, last = shown[:head], shown[head:-tail], shown[-tail:]
    kept: list[Entry] = []
    hidden: list[Entry] = []
    failed = 0
    for entry in between:
        if isinstance(entry, Row) and entry.is_failed and failed < _MOST_FAILED:
            failed += 1
            if hidden:
                kept.append(_gap(hidden))
                hidden = []
            kept.append(entry)
        else:
            hidden.append(entry)
    if hidden:
        kept.append(_gap(hidden))
    return [*first, *kept, *last]


def _gap(hidden: Sequence[Entry]) -> Gap:
    gap = Gap(depth=min(entry.depth for entry in hidden), count=0)
    starts: list[int] = []
    for entry in hidden:
        match entry:
            case Row():
                gap.count += 1
                gap.failed += entry.is_failed
            case Group():
                gap.count += len(entry.rows)
                gap.failed += entry.failed
            case Gap():
                gap.count += entry.count
                gap.failed += entry.failed
        starts.append(entry.start_ns)
        gap.end_ns = max(gap.end_ns, entry.end_ns)
    gap.start_ns = min(starts)
    return gap
