"""What becomes of an editable file, by what the three versions of it are."""

from __future__ import annotations

import pytest
from sandstream_actors.memory.copies.decisions import decide, digest_of
from sandstream_actors.memory.copies.marker import Laid, parse_marker
from sandstream_bus.wire.memories import FileRef, Tree

NOTE, HANDBOOK = "memories/note.md", "memories/MEMORY.md"


def tree(path: str, text: str | None) -> Tree:
    return {} if text is None else {path: FileRef(digest=digest_of(text.encode()), size=len(text))}


@pytest.mark.parametrize(
    ("was", "mine", "now", "told", "decision"),
    [
        ("a", "a", "a", None, "head"),
        ("a", "a", "b", None, "head"),
        ("a", "b", "a", None, "edit"),
        ("a", "b", "c", None, "edit"),
        ("a", "b", "b", None, "head"),  # it came from here, or both had the same idea
        ("a", "b", "a", "b", "pending"),  # told, not taken over yet
        ("a", "b", "c", "b", "pending"),  # nor if something else changed in the memory
        ("a", "d", "a", "b", "edit"),  # told, and changed again
        ("a", None, "a", None, "edit"),
        ("a", None, "a", "", "pending"),
        ("a", None, None, None, "head"),
        (None, "a", None, None, "edit"),
        (None, None, "a", None, "head"),
    ],
)
def test_three_versions(
    was: str | None, mine: str | None, now: str | None, told: str | None, decision: str
) -> None:
    found = decide(
        {} if mine is None else {NOTE: digest_of(mine.encode())},
        base=tree(NOTE, was),
        head=tree(NOTE, now),
        told={} if told is None else {NOTE: digest_of(told.encode()) if told else ""},
        writable=True,
        may_delete=True,
    )
    assert found[NOTE] == decision
    assert found[HANDBOOK] == "head"


def test_a_change_that_was_told_is_kept_until_the_memory_has_it() -> None:
    for now, is_taken, settled, decision in (
        ("a", True, [], "pending"),
        ("c", True, [], "head"),
        ("a", False, [NOTE], "head"),  # somebody has taken it back
        ("c", False, [NOTE], "head"),
        ("c", False, [HANDBOOK], "pending"),
    ):
        found = decide(
            {NOTE: digest_of(b"b")},
            base=tree(NOTE, "a"),
            head=tree(NOTE, now),
            told={NOTE: digest_of(b"b")},
            is_taken=is_taken,
            settled=settled,
            writable=True,
            may_delete=True,
        )
        assert found[NOTE] == decision


def test_what_is_missing_was_not_always_deleted() -> None:
    for path, may_delete, unreadable in (
        (NOTE, False, []),
        (NOTE, True, [NOTE]),
        (HANDBOOK, True, []),
    ):
        known = tree(path, "a")
        found = decide(
            {},
            base=known,
            head=known,
            told={},
            unreadable=unreadable,
            writable=True,
            may_delete=may_delete,
        )
        assert found[path] == "head"


def test_an_empty_handbook_is_as_good_as_none() -> None:
    local = {HANDBOOK: digest_of(b"")}
    found = decide(local, base={}, head={}, told={}, writable=True, may_delete=True)
    assert found[HANDBOOK] == "head"


def test_where_nothing_is_kept_the_memory_counts() -> None:
    local = {NOTE: digest_of(b"b")}
    found = decide(local, base={}, head={}, told={}, writable=False, may_delete=True)
    assert found[NOTE] == "head"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[" * 100_000, b"{}", b'{"scope":"","revision":1}', b"1"]
)
def test_what_is_no_marker(data: bytes) -> None:
    assert parse_marker(data) is None


def test_a_marker_is_read_as_it_was_written() -> None:
    laid = Laid(scope="s", revision=3, files=tree(NOTE, "a"), told={NOTE: ""}, messages={NOTE: 7})
    assert parse_marker(laid.encode()) == laid
