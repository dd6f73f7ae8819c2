"""The text of an exception: whatever it is, there is one, and it can be sent."""

from __future__ import annotations

import msgspec
import pytest
from sandstream_bus.wire.error_text import LIMIT, error_text, named_error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Wrong(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class Odd(BaseException):
    pass


class Odder(Exception):
    def __str__(self) -> str:
        raise Odd


class Leaving(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "text", "named"),
    [
        (ValueError("what"), "what", "ValueError: what"),
        (ValueError(), "ValueError", "ValueError"),
        (KeyError("k"), "'k'", "KeyError: 'k'"),
        (Odd("odd"), "odd", "Odd: odd"),
        (ValueError("half \ud83d"), "half \\ud83d", "ValueError: half \\ud83d"),
        (ValueError(b"\xff"), "b'\\xff'", "ValueError: b'\\xff'"),
        (
            ExceptionGroup("two", [Unspeakable(), ValueError()]),
            "two (2 sub-exceptions)",
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
    ],
    ids=lambda it: type(it).__name__ if isinstance(it, BaseException) else None,
)
def test_the_text_is_what_str_says(error: BaseException, text: str, named: str) -> None:
    assert error_text(error) == text
    assert named_error(error) == named


@pytest.mark.parametrize("error", [Unspeakable(), Wrong(), Odder()])
def test_where_there_is_no_text_the_class_says_what_it_was(error: Exception) -> None:
    text = error_text(error)
    assert text.startswith(f"{type(error).__name__} (it has no text: its __str__ raised ")
    assert named_error(error) == text


def test_a_long_text_is_cut() -> None:
    text = error_text(ValueError("x" * 3_000_000))
    assert text == "x" * LIMIT + "… (3000000 characters)"
    assert len(msgspec.json.encode(text)) < 128 * 1024


def test_whoever_ends_the_program_does_so() -> None:
    with pytest.raises(KeyboardInterrupt):
        error_text(Leaving())
