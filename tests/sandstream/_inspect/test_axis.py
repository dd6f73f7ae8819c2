"""The time axis: even, unless nobody worked for most of the time."""

from __future__ import annotations

import pytest
from support.tracing.made_spans import MS, MadeRun, at, timeline_of

from sandstream._inspect.axis import axis_of, tick_label, time_axis

SECOND = 1_000_000_000


def test_an_even_axis() -> None:
    axis = time_axis(0, 1000, [])
    assert [axis.share(time) for time in (-5, 0, 250, 1000, 2000)] == [0, 0, 0.25, 1, 1]


def test_a_moment_has_an_axis_too() -> None:
    axis = time_axis(7, 7, [])
    assert (axis.share(7), [tick.label for tick in axis.ticks(5)]) == (0, ["0"])


def test_a_long_wait_for_a_person_is_drawn_short() -> None:
    run = MadeRun("r", "cashier", 0, 7_200_000)
    run.add("chat", "gpt-5", 0, 1000)
    run.add("approval", "approval refund", 1000, 7_199_000)
    run.add("tool", "refund", 7_199_000, 7_200_000)
    axis = axis_of(timeline_of(run))
    (gap,) = axis.breaks
    assert (gap.start_ns, gap.end_ns) == (at(1000), at(7_199_000))
    assert gap.right - gap.left < 0.2
    assert axis.share(at(500)) == pytest.approx(0.22)
    assert axis.share(at(7_200_000)) == pytest.approx(1)
    assert [tick.label for tick in axis.ticks(4)] == ["0", "0.5s", "1.0s", "+0.5s", "+1.0s"]


def test_a_short_wait_is_drawn_as_long_as_it_was() -> None:
    run = MadeRun("r", "cashier", 0, 2000)
    run.add("chat", "gpt-5", 0, 1000)
    run.add("approval", "approval refund", 1000, 1500)
    assert axis_of(timeline_of(run)).breaks == []


@pytest.mark.parametrize("length", [0, 1, 999, 3 * MS, SECOND, 65 * SECOND, 10**14, 10**18])
@pytest.mark.parametrize("most", [1, 2, 7, 20])
def test_ticks_are_few_and_in_order(length: int, most: int) -> None:
    ticks = time_axis(at(0), at(0) + length, []).ticks(most)
    assert 1 <= len(ticks) <= most + 1
    shares = [tick.share for tick in ticks]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] <= 1
    assert len({tick.label for tick in ticks}) == len(ticks)


@pytest.mark.parametrize(
    ("since", "step", "label"),
    [
        (0, SECOND, "0"),
        (200 * MS, 50 * MS, "200ms"),
        (500_000, 500_000, "0.5ms"),
        (1_500 * MS, 500 * MS, "1.5s"),
        (20 * SECOND, 5 * SECOND, "20s"),
        (90 * SECOND, 30 * SECOND, "1m30s"),
        (7_200 * SECOND, 600 * SECOND, "2h"),
        (7_260 * SECOND, 60 * SECOND, "2h01m"),
        (90_000 * SECOND, 3600 * SECOND, "1d1h"),
    ],
)
def test_labels(since: int, step: int, label: str) -> None:
    assert tick_label(since, step) == label
