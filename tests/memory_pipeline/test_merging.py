"""Three-way merges of texts and files: written-out cases, and properties of random ones."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from sandstream_memory.diffs import reverted, unified
from sandstream_memory.layout import MEMORY_FILE, RAW_FILE, SUMMARY_FILE
from sandstream_memory.three_way_merge import merge_files, merge_text

CASES = [
    ("one side only", "a\nb\n", "a\nx\nb\n", "a\nb\n", "a\nx\nb\n"),
    ("different places", "a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
    ("neighbours, in the order of the base", "a\nb\n", "a\nB\n", "A\nb\n", "A\nB\n"),
    ("the same line, twice changed", "a\n", "a1\n", "a2\n", "a1\na2\n"),
    ("the same addition", "a\n", "a\nx\n", "a\nx\n", "a\nx\n"),
    ("items of a list", "a\n", "a\n- x\n- y\n", "a\n- y\n- z\n", "a\n- x\n- y\n- z\n"),
    ("deleted by one", "a\nb\nc\n", "a\nc\n", "a\nb\nc\nd\n", "a\nc\nd\n"),
    ("deleted and changed", "a\nb\nc\n", "a\nc\n", "a\nB\nc\n", "a\nB\nc\n"),
    ("from nothing", "", "ours\n", "theirs\n", "ours\ntheirs\n"),
    (
        "the same words in two places",
        "# A\n# B\n",
        "# A\nx\ny\n# B\n",
        "# A\n# B\nx\n",
        "# A\nx\ny\n# B\nx\n",
    ),
    ("each deleted another copy", "A\nx\nB\nx\n", "A\nx\nB\n", "A\nB\nx\n", "A\nx\nB\n"),
    ("without a last line break", "a", "a\nx", "y\na", "y\na\nx"),
]


@pytest.mark.parametrize(("base", "ours", "theirs", "merged"), [c[1:] for c in CASES])
def test_cases(base: str, ours: str, theirs: str, merged: str) -> None:
    assert merge_text(base, ours, theirs) == merged


def test_blocks_are_not_torn_apart() -> None:
    base = "# Old\n\ntext\n"
    ours = base + "\n# One\n\n## Preferences\n\n- a\n"
    theirs = base + "\n# Two\n\n## Preferences\n\n- b\n"
    merged = merge_text(base, ours, theirs)
    assert merged == base + "\n# One\n\n## Preferences\n\n- a\n# Two\n\n## Preferences\n\n- b\n"


def _changed(rng: random.Random, lines: list[str], fresh: Callable[[], str]) -> list[str]:
    lines = list(lines)
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(lines))
        kind = rng.random()
        if kind < 0.5:
            lines[at:at] = [fresh() for _ in range(rng.randint(1, 3))]
        elif kind < 0.75:
            del lines[at : at + rng.randint(1, 2)]
        else:
            lines[at : at + 1] = [fresh()]
    return lines


def _said(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def test_nothing_is_lost_or_doubled_or_comes_back() -> None:
    for seed in range(600):
        rng = random.Random(seed)
        number = iter(range(1000))

        def fresh(rng: random.Random = rng, number: object = number) -> str:
            text = f"line {next(number)}"  # type: ignore[call-overload]
            return rng.choice(["", "- ", "# "]) + text if rng.random() < 0.8 else ""

        lines = [fresh() for _ in range(rng.randint(0, 8))]
        texts = [lines, _changed(rng, lines, fresh), _changed(rng, lines, fresh)]
        base, ours, theirs = ("\n".join(each) for each in texts)
        merged = merge_text(base, ours, theirs)
        case = (seed, base, ours, theirs, merged)
        was, mine, yours = (set(_said(each)) for each in (base, ours, theirs))
        assert set(_said(merged)) == (mine & yours) | (mine - was) | (yours - was), case
        assert len(_said(merged)) == len(set(_said(merged))), case
        for side in (ours, theirs):
            assert _said(merge_text(base, merged, side)) == _said(merged), case
            assert _said(merge_text(base, side, merged)) == _said(merged), case
        assert merge_text(base, base, theirs) == theirs and merge_text(base, ours, base) == ours
        assert merge_text(base, ours, ours) == ours


def test_lines_that_are_everywhere_lose_nothing() -> None:
    for seed in range(400):
        rng = random.Random(seed)
        lines = [rng.choice("abcd") for _ in range(rng.randint(0, 10))]
        fresh = functools.partial(rng.choice, "abcdefg")
        sides = [_changed(rng, lines, fresh) for _ in range(2)]
        base, ours, theirs = ("\n".join(each) for each in (lines, *sides))
        merged = set(_said(merge_text(base, ours, theirs)))
        added = (set(_said(ours)) | set(_said(theirs))) - set(_said(base))
        assert added <= merged, (seed, base, ours, theirs)


def test_copies_of_a_line_are_not_lost() -> None:
    pools = ["abcd", ["# A", "# B", "## S", "- x", "- y", "- none", "", "t"]]
    for seed in range(1500):
        rng = random.Random(seed)
        pool = rng.choice(pools)
        fresh = functools.partial(rng.choice, pool)
        lines = [fresh() for _ in range(rng.randint(0, 10))]
        sides = [_changed(rng, lines, fresh) for _ in range(2)]
        base, ours, theirs = ("\n".join(each) for each in (lines, *sides))
        merged = merge_text(base, ours, theirs)
        was, mine, yours, here = (Counter(_said(it)) for it in (base, ours, theirs, merged))
        for line in mine | yours:
            assert here[line] >= min(mine[line], yours[line]), (seed, line, merged)
            if min(mine[line], yours[line]) >= was[line]:
                assert here[line] >= max(mine[line], yours[line]), (seed, line, merged)


def _items_below(text: str) -> set[tuple[str, str]]:
    found, heading = set(), ""
    for line in _said(text):
        heading = line if line.startswith("#") else heading
        found.add((heading, line))
    return found


def test_what_one_side_added_below_a_heading_is_there_and_merged_only_once() -> None:
    for seed in range(1500):
        rng = random.Random(seed)
        lines = [it for name in "ABC" for it in (f"# {name}", f"- of {name}", f"- {name}", "")]
        fresh = functools.partial(rng.choice, ["- x", "- y", "- z", "- pays by card", "## more"])
        texts = ["\n".join(lines)]
        for _ in range(2):
            changed = list(lines)
            for _ in range(rng.randint(0, 4)):
                at = rng.randint(1, len(changed))
                if rng.random() < 0.8:
                    changed[at:at] = [fresh()]
                elif at < len(changed) and changed[at] in lines and changed[at][:1] != "#":
                    del changed[at]
            texts.append("\n".join(changed))
        base, ours, theirs = texts
        merged = merge_text(base, ours, theirs)
        added = {it for side in (ours, theirs) for it in _items_below(side) if it[1] not in lines}
        plain = {(below, item) for below, item in added if below != "## more" != item}
        if "## more" not in merged:
            assert plain <= _items_below(merged), (seed, texts, merged)
        assert {item for _, item in added} <= set(_said(merged)), (seed, texts, merged)
        for side in (ours, theirs):
            assert _said(merge_text(base, merged, side)) == _said(merged), (seed, texts, merged)
            assert _said(merge_text(base, side, merged)) == _said(merged), (seed, texts, merged)


def test_an_edit_that_was_merged_is_not_merged_again() -> None:
    base = "# A\n\n### keywords\n- none\n"
    edit = base + "\n# B\n\n### keywords\n- none\n"
    head = merge_text(base, edit, base + "\n# C\n\n### keywords\n- none\n")
    assert merge_text(base, edit, head) == head
    assert head.count("### keywords") == 3


def test_long_texts_of_equal_lines_end() -> None:
    text = "\n".join(f"x{number % 150}" for number in range(8_000))
    other = "\n".join(f"x{number % 150}" for number in range(8_000, 0, -1))
    assert merge_text(text, text + "\nnew", other).count("new") == 1


def test_files() -> None:
    base = {MEMORY_FILE: b"a\n", "memories/x.md": b"x", "memories/y.md": b"y", RAW_FILE: b"r"}
    ours = {MEMORY_FILE: b"a\no\n", "memories/y.md": b"Y", "memories/n.bin": b"\xff1"}
    theirs = {
        MEMORY_FILE: b"t\na\n",
        "memories/x.md": b"x",
        "memories/n.bin": b"\xff2",
        RAW_FILE: b"R",
    }
    assert merge_files(base, ours, theirs) == {
        MEMORY_FILE: b"t\na\no\n",
        "memories/y.md": b"Y",  # deleted there, but changed here
        "memories/n.bin": b"\xff1",
    }


def test_an_undo_keeps_what_came_later() -> None:
    before = {MEMORY_FILE: b"a\nb\n", SUMMARY_FILE: b"s\n", RAW_FILE: b"1"}
    after = {MEMORY_FILE: b"a\nc\n", SUMMARY_FILE: b"t\n", RAW_FILE: b"2", "memories/n.md": b"n"}
    head = {**after, MEMORY_FILE: b"a\nc\nlater\n", "sessions/x.jsonl": b"{}"}
    assert reverted(before, after, head) == {
        MEMORY_FILE: b"a\nb\nlater\n",
        SUMMARY_FILE: b"s\n",
        RAW_FILE: b"1",
        "sessions/x.jsonl": b"{}",
    }


def test_an_undo_of_a_change_that_made_a_file_takes_its_lines_back() -> None:
    after = {MEMORY_FILE: b"- a\n- wrong\n", "memories/n.md": b"n\n", "memories/b": b"\xff1"}
    later = {
        MEMORY_FILE: b"- a\n- wrong\n- later\n",
        "memories/n.md": b"\n",
        "memories/b": b"\xff2",
    }
    assert reverted({}, after, later) == {MEMORY_FILE: b"- later\n", "memories/b": b"\xff2"}
    assert reverted({}, after, after) == {}
    kept = {**after, MEMORY_FILE: b""}
    assert reverted({MEMORY_FILE: b""}, after, later)[MEMORY_FILE] == b"- later\n"
    assert reverted(kept, after, later)[MEMORY_FILE] == b"- later\n"


def test_a_diff_names_all_files() -> None:
    before = {MEMORY_FILE: b"a\nb\n", "memories/gone.md": b"x\n", "memories/same.md": b"s"}
    after = {MEMORY_FILE: b"a\nc\n", "memories/n.bin": b"\xff", "memories/same.md": b"s"}
    diff = unified(before, after)
    assert "-b\n+c\n" in diff and "+++ /dev/null" in diff and "(no text: 0 -> 1 bytes)" in diff
    assert "same.md" not in diff
    assert unified(before, before) == ""
