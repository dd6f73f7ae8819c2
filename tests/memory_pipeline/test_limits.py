"""Sizes of what agents and people write."""

from __future__ import annotations

import random

from sandstream_memory.layout import MEMORY_FILE, RAW_FILE, SUMMARY_FILE, Files
from sandstream_memory.limits import MAX_OTHER_FILES, too_big, within_limits

MIB = 1024 * 1024
ROOM = 16 * MIB


def test_what_is_too_big_is_named() -> None:
    files: Files = {MEMORY_FILE: b"x" * 600_000, SUMMARY_FILE: b"x" * 60_000, RAW_FILE: b"x" * MIB}
    assert too_big(files, ROOM) == [
        "memories/MEMORY.md has 600000 bytes, more than the 524288 allowed"
    ]
    assert too_big({MEMORY_FILE: b"x" * 600}, 1000)[0].endswith("more than the 500 allowed")
    assert too_big({"memories/n.md": b"x" * 100}, 50) == [
        "the memory has 100 bytes, more than the 50 allowed"
    ]
    many = {f"memories/n{number}": b"" for number in range(MAX_OTHER_FILES + 1)}
    assert too_big(many, ROOM) == ["there are 1001 skills and notes, more than 1000"]


def test_a_file_that_grew_too_big_is_as_before() -> None:
    before: Files = {MEMORY_FILE: b"old\n", "memories/n.md": b"n" * 300_000}
    after: Files = {
        MEMORY_FILE: b"x" * 800_000,
        SUMMARY_FILE: b"x" * 70_000,
        "memories/n.md": b"n" * 290_000,  # was too big before
        "memories/m.md": b"new\n",
        RAW_FILE: b"x" * MIB,
    }
    found, notes = within_limits(before, after, ROOM)
    assert found == {
        MEMORY_FILE: b"old\n",
        "memories/n.md": b"n" * 290_000,
        "memories/m.md": b"new\n",
        RAW_FILE: b"x" * MIB,
    }
    assert len(notes) == 2 and "800000 bytes" in notes[0]
    assert within_limits(before, before, ROOM) == (before, [])


def test_files_together() -> None:
    before: Files = {"memories/a.md": b"a" * 600}
    after: Files = {"memories/a.md": b"b" * 600, "memories/b.md": b"b" * 600, RAW_FILE: b"r"}
    found, notes = within_limits(before, after, 1000)
    assert found == {**before, RAW_FILE: b"r"} and "1200 bytes" in notes[0]
    many = {f"memories/n{number:04}": b"" for number in range(MAX_OTHER_FILES + 2)}
    found, notes = within_limits({"memories/n1001": b""}, many, ROOM)
    assert len(found) == MAX_OTHER_FILES and len(notes) == 2 and "memories/n1001" in found


def test_nothing_gets_further_beyond_the_limits() -> None:
    names = [MEMORY_FILE, SUMMARY_FILE, "memories/a", "memories/b"]
    for seed in range(300):
        rng = random.Random(seed)
        max_bytes = rng.choice([100_000, MIB])
        sides = [
            {it: b"x" * rng.choice([1, 70_000, 300_000, 600_000]) for it in names} for _ in "12"
        ]
        for side in sides:
            del side[rng.choice(names)]
        before, after = sides
        found, notes = within_limits(before, after, max_bytes)
        if not too_big(before, max_bytes):
            assert not too_big(found, max_bytes)
        assert bool(notes) == (found != after)
        assert within_limits(before, found, max_bytes) == (found, [])
