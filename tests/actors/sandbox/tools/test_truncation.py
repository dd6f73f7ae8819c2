"""Shortening of output: literal cases as other implementations of the format give them."""

from __future__ import annotations

import random

import pytest
from sandstream_actors.sandbox.tools.truncation import BYTES_PER_TOKEN, shorten, tokens_of

LINES = "Total output lines: "
CASES = [
    ("short", None, ("short", None)),
    ("short", 2, ("short", None)),
    ("abcdefgh", 2, ("abcdefgh", None)),
    ("abcdefghi", 2, ("…3 tok", 3)),
    ("a\nb\n" * 40, 10, ("a\nb\na\nb…37 tokens truncated…a\nb\na\nb\n", 40)),
    ("a\nb\n" * 40, 15, (LINES + "80\n\na\nb\na…38 tokens truncated…b\na\nb\n", 40)),
    (
        "0123456789" * 20,
        20,
        (LINES + "1\n\n0123456789012345…42 tokens truncated…4567890123456789", 50),
    ),
    ("é" * 100, 20, (LINES + "1\n\néééééééé…42 tokens truncated…éééééééé", 50)),
    ("漢字" * 60, 25, (LINES + "1\n\n漢字漢字漢字漢字…78 tokens truncated…漢字漢字漢字漢字", 90)),
    ("😀" * 50, 30, (LINES + "1\n\n" + "😀" * 9 + "…32 tokens truncated…" + "😀" * 9, 50)),
    (
        "x" * 30 + "😀" + "y" * 200,
        16,
        (LINES + "1\n\nxxxxxxxx…55 tokens truncated…yyyyyyyy", 59),
    ),
    (
        "line\n" * 200,
        30,
        (
            LINES + "200\n\n" + "line\n" * 6 + "line…233 tokens truncated…" + "line\n" * 7,
            250,
        ),
    ),
    (
        "\u2028".join("ab" * 40),
        24,
        (
            LINES + "80\n\na\u2028b\u2028a\u2028b\u2028a\u2028b"
            "…68 tokens truncated…\u2028a\u2028b\u2028a\u2028b\u2028a\u2028b",
            80,
        ),
    ),
    ("ab" * 10, 1, ("…5", 5)),
    ("é" * 9, 4, ("…5 tokens trun", 5)),
    ("a" * 1001, 250, (LINES + "1\n\n" + "a" * 475 + "…13 tokens truncated…" + "a" * 476, 251)),
    ("a" * 1000, 250, ("a" * 1000, None)),
    ("", 1, ("", None)),
    ("…" * 40, 12, (LINES + "1\n\n…30 tokens truncated…", 30)),
]


@pytest.mark.parametrize(("text", "max_tokens", "expected"), CASES)
def test_literal_cases(text: str, max_tokens: int | None, expected: tuple[str, int | None]) -> None:
    assert shorten(text, max_tokens) == expected


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_estimate_rounds_up(size: int, tokens: int) -> None:
    assert tokens_of(size) == tokens


def test_never_over_budget_and_never_a_cut_character() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        text = "".join(chance.choices("ab\né漢😀…", k=chance.randint(0, 300)))
        limit = chance.randint(1, 60)
        short, total = shorten(text, limit)
        assert len(short.encode()) <= limit * BYTES_PER_TOKEN
        if total is None:
            assert short == text
        else:
            assert total == tokens_of(len(text.encode())) > limit
            # Around the marker there are only pieces of the text.
            body = short.removeprefix(f"Total output lines: {len(text.splitlines())}\n\n")
            head, found, _ = body.partition("…")
            assert text.startswith(head) or "…" in text
            assert found or not body


def test_a_large_output_is_shortened_quickly_to_head_and_tail() -> None:
    text = "start\n" + "x" * 20_000_000 + "\nend"
    short, total = shorten(text, 50)
    assert short.startswith("Total output lines: 3\n\nstart\nxxx")
    assert short.endswith("xxx\nend")
    assert total == 5_000_003
