"""Shorten texts: keep the beginning and the end, with a note between them."""

from __future__ import annotations

from collections.abc import Callable

Scrub = Callable[[str], str]
"""Removes secrets from a text."""

_MARGIN = 8192
"""Longer than any secret: text closer to a cut may be part of a secret that was cut."""
_LONGEST_URL = 256


def shortened(text: str, max_chars: int) -> str:
    """Head and tail of a text longer than ``max_chars``, plus a note that is not counted."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars - max_chars // 2, max_chars // 2
    note = f"\n[... {len(text) - head - tail} characters left out ...]\n"
    return f"{text[:head]}{note}{text[len(text) - tail :]}"


def clean(text: str, scrub: Scrub, max_chars: int) -> str:
    """Scrub and shorten a text, without scrubbing all of a huge one.

    A cut through a secret can leave half of it, which scrubbing would not recognise. So more text
    is scrubbed than kept, and the text next to the first cut is thrown away.
    """
    if text.startswith("data:") and len(text) > _LONGEST_URL and ";base64," in text[:_LONGEST_URL]:
        kind = text.split(";", 1)[0]
        return f"{scrub(kind)};base64,[... {len(text)} characters left out ...]"
    if len(text) <= max_chars + 4 * _MARGIN:
        return shortened(scrub(text), max_chars)
    head, tail = max_chars - max_chars // 2, max_chars // 2
    kept_head = scrub(text[: head + _MARGIN])[:-_MARGIN][:head]
    kept_tail = scrub(text[len(text) - tail - _MARGIN :])[_MARGIN:]
    kept_tail = kept_tail[max(0, len(kept_tail) - tail) :]
    left_out = len(text) - len(kept_head) - len(kept_tail)
    return f"{kept_head}\n[... {left_out} characters left out ...]\n{kept_tail}"


def shortened_bytes(text: str, max_bytes: int, note: str) -> str:
    """Head and tail that fit into ``max_bytes`` together with the note between them."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    room = max(0, max_bytes - len(note.encode()))
    head, tail = data[: room - room // 2], data[len(data) - room // 2 :]
    whole = head.decode("utf-8", "ignore"), tail.decode("utf-8", "ignore")
    return f"{whole[0]}{note}{whole[1]}"


def decoded(data: bytes) -> str:
    """Decode untrusted file content; invalid bytes are replaced."""
    return data.decode("utf-8", "replace")


def encoded(text: str) -> bytes:
    """Encode as UTF-8; a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


def one_line(text: str) -> str:
    """Join lines, so that a header value cannot start another line."""
    return " ".join(text.split())
