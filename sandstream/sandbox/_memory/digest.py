"""The digest of a memory as text, from the readable parts of its file. No I/O."""

from __future__ import annotations

import codecs


def digest_of_ends(head: bytes, tail: bytes, size: int) -> str:
    """The text of a file; for a big one its head and tail, up to the limit for a prompt.

    Raises :class:`ValueError` if it is not text.
    """
    from sandstream_memory.digest import MAX_SUMMARY_TOKENS
    from sandstream_memory.excerpts import shortened_bytes
    from sandstream_memory.transcripts import BYTES_PER_TOKEN

    if b"\0" in head or b"\0" in tail:
        raise ValueError("it is not text")
    if not tail:
        return head.decode()
    tokens = -(-size // BYTES_PER_TOKEN)
    left_out = tokens - MAX_SUMMARY_TOKENS
    note = f"\n[... about {left_out} of {tokens} tokens left out here ...]\n"
    begin = codecs.getincrementaldecoder("utf-8")().decode(head)  # drops a partial character
    text = begin + tail.lstrip(_INNER_BYTES).decode()
    return shortened_bytes(text.strip(), MAX_SUMMARY_TOKENS * BYTES_PER_TOKEN, note)


_INNER_BYTES = bytes(range(0x80, 0xC0))
"""UTF-8 continuation bytes: no character begins with one of them."""
