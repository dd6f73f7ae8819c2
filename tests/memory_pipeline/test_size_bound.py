"""Memories that are too big: what goes first, and what never does."""

from __future__ import annotations

from sandstream_bus.wire.memories import Rollout
from sandstream_memory.layout import (
    MEMORY_FILE,
    RAW_FILE,
    SELECTION_FILE,
    SUMMARY_FILE,
    raw_path,
    rollout_path,
)
from sandstream_memory.size_bound import to_drop

OLD, A, B, NEW = ROLLOUTS = [
    Rollout(id="old", name="old", updated_at="2026-01-01T00:00:00Z", slug="s", is_merged=True),
    Rollout(id="a", name="a", updated_at="2026-01-02T00:00:00Z", slug="s", is_merged=True),
    Rollout(id="b", name="b", updated_at="2026-01-03T00:00:00Z", slug="s"),
    Rollout(id="new", name="new", updated_at="2026-01-04T00:00:00Z", runs=["r"]),
]
SIZES = {
    MEMORY_FILE: 1000,
    SUMMARY_FILE: 100,
    "memories/n.md": 100,
    SELECTION_FILE: 100,
    RAW_FILE: 1000,
    rollout_path("orphan"): 1000,
    **{rollout_path(it.name): 1000 for it in ROLLOUTS},
    **{raw_path(it.name): 1000 for it in (OLD, A, B)},
}
TOTAL = sum(SIZES.values())
ORDER = [
    rollout_path("orphan"),
    rollout_path("old"),
    rollout_path("a"),
    rollout_path("b"),
    raw_path("old"),
    RAW_FILE,
    raw_path("a"),
    raw_path("b"),
]


def dropped(max_bytes: int, needed: tuple[str, ...] = ("new",)) -> list[str]:
    return to_drop(SIZES, ROLLOUTS, selected=["a"], needed=needed, max_bytes=max_bytes)


def test_what_fits_stays() -> None:
    assert dropped(TOTAL) == []


def test_no_more_than_needed_goes_and_the_least_needed_first() -> None:
    assert dropped(TOTAL - 1) == ORDER[:1]
    assert dropped(TOTAL - 1500) == ORDER[:2]
    assert dropped(0) == ORDER


def test_a_recording_that_nobody_has_read_stays_until_somebody_has() -> None:
    assert rollout_path("new") not in dropped(0)
    assert rollout_path("new") in dropped(0, needed=())
    assert rollout_path("a") not in dropped(0, needed=("a", "new"))
