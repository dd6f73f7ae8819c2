"""Counts before nouns."""

from __future__ import annotations

import pytest
from sandstream_bus.counts import numbered


@pytest.mark.parametrize(
    ("number", "words", "shown", "text"),
    [
        (0, ("run",), "", "0 runs"),
        (1, ("run",), "", "1 run"),
        (2, ("run",), "", "2 runs"),
        (1, ("message waits", "messages wait"), "", "1 message waits"),
        (3, ("message waits", "messages wait"), "", "3 messages wait"),
        (1.0, ("day",), "", "1 day"),
        (1.5, ("day",), "", "1.5 days"),
        (12_345, ("token",), "12.3k", "12.3k tokens"),
        (1_234_567, ("byte",), "", "1234567 bytes"),
    ],
)
def test_the_noun_fits_its_number(
    number: float, words: tuple[str, ...], shown: str, text: str
) -> None:
    assert numbered(number, *words, shown=shown) == text
