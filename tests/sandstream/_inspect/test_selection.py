"""What is shown of many rows: groups and gaps that say what they stand for."""

from __future__ import annotations

from collections.abc import Collection

from support.tracing.made_spans import MS, MadeRun, timeline_of

from sandstream._inspect.selection import GROUPED_FROM, Gap, Group, entries
from sandstream._inspect.timeline import Row


def parallel(count: int, failing: Collection[int] = ()) -> list[Row]:
    parent = MadeRun("r", "manager", 0, 5000)
    runs = [parent]
    for number in range(count):
        call = parent.add("tool", "research", 100 + number, 1000 + 100 * number)
        child = MadeRun(f"r_{number}", "researcher", 110 + number, 990, parent=call)
        child.add(
            "chat", "gpt-5", 120, 900, tokens=(10, 2), error="bad" if number in failing else ""
        )
        runs.append(child)
    parent.add("chat", "gpt-5", 4000, 5000)
    return timeline_of(*runs).rows


def test_few_rows_are_all_shown() -> None:
    rows = parallel(GROUPED_FROM - 1)
    assert entries(rows) == rows


def test_many_equal_rows_at_once_are_one_group() -> None:
    manager, group, last = entries(parallel(20))
    assert isinstance(group, Group) and isinstance(manager, Row) and isinstance(last, Row)
    assert (len(group.rows), group.depth, group.failed) == (20, 1, 0)
    assert (group.input_tokens, group.output_tokens) == (200, 40)
    lengths = sorted(900 * MS + 99 * MS * number for number in range(20))
    assert [group.shortest_ns, group.median_ns, group.longest_ns] == [
        lengths[0],
        lengths[9],
        lengths[-1],
    ]


def test_what_failed_in_a_group_is_shown_below_it() -> None:
    shown = entries(parallel(20, failing={7}))
    assert isinstance(shown[1], Group) and shown[1].failed == 1
    assert [(row.depth, row.label) for row in shown[2:5] if isinstance(row, Row)] == [
        (2, "research"),
        (3, "researcher"),
        (4, "chat gpt-5"),
    ]
    many = entries(parallel(40, failing=set(range(40))))
    assert sum(isinstance(it, Row) and it.is_failed for it in many) == 10
    (gap,) = [it for it in many if isinstance(it, Gap)]
    assert (gap.count, gap.failed, gap.depth) == (90, 30, 2)


def test_rows_one_after_the_other_are_no_group() -> None:
    run = MadeRun("r", "looper", 0, 5000)
    for number in range(50):
        run.add("tool", "step", 100 * number, 100 * number + 100)
    assert len(entries(timeline_of(run).rows)) == 51


def test_a_long_timeline_has_a_gap_that_tells_how_long_it_is() -> None:
    run = MadeRun("r", "looper", 0, 500_000)
    for number in range(5000):
        error = "bad" if number == 2500 else ""
        run.add("tool", "step", 100 * number, 100 * number + 100, error=error)
    rows = timeline_of(run).rows
    shown = entries(rows, most=100)
    gaps = [it for it in shown if isinstance(it, Gap)]
    assert shown[:60] == rows[:60] and shown[-40:] == rows[-40:]
    assert [it.is_failed for it in shown[60:-40] if isinstance(it, Row)] == [True]
    assert sum(gap.count for gap in gaps) + 101 == len(rows)
    assert gaps[0].end_ns <= gaps[1].start_ns
