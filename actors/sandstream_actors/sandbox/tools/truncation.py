"""Shortens a command's output to a budget of tokens: keeps the head and the tail.

A token is estimated as four bytes of UTF-8, rounded up. That needs no tokenizer, and is precise
enough to keep a context from overflowing.
"""

from __future__ import annotations

BYTES_PER_TOKEN = 4


def tokens_of(size_bytes: int) -> int:
    """The approximate number of tokens of this many bytes."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def shorten(text: str, max_tokens: int | None) -> tuple[str, int | None]:
    """The text within the budget, and the estimate for the whole text if it had to be shortened.

    The first line states the number of lines, if there is room for it. The omitted part is marked
    in the middle. Characters are never cut.
    """
    if max_tokens is None:
        return text, None
    data = text.encode()
    budget = max(0, max_tokens) * BYTES_PER_TOKEN
    if len(data) <= budget:
        return text, None
    total = tokens_of(len(data))
    return _head_and_tail(data, budget, f"Total output lines: {len(text.splitlines())}\n\n"), total


def _head_and_tail(data: bytes, budget: int, heading: str) -> str:
    # The marker is built twice: first at its maximum length, to find the room for the content.
    longest = _size(_marker(len(data)))
    if len(heading) + longest > budget:
        heading = ""
    room = budget - len(heading) - longest
    if room < 0:
        return _marker(len(data)).encode()[:budget].decode(errors="ignore")
    head_end = _boundary_at_or_before(data, room // 2)
    tail_start = max(head_end, _boundary_at_or_after(data, len(data) - (room - room // 2)))
    return "".join(
        (
            heading,
            data[:head_end].decode(),
            _marker(tail_start - head_end),
            data[tail_start:].decode(),
        )
    )


def _marker(left_out_bytes: int) -> str:
    return f"…{tokens_of(left_out_bytes)} tokens truncated…"


def _size(text: str) -> int:
    return len(text.encode())


def _boundary_at_or_before(data: bytes, position: int) -> int:
    while _is_inside_character(data, position):
        position -= 1
    return position


def _boundary_at_or_after(data: bytes, position: int) -> int:
    while _is_inside_character(data, position):
        position += 1
    return position


def _is_inside_character(data: bytes, position: int) -> bool:
    return position < len(data) and data[position] & 0xC0 == 0x80
