"""Render a rollout as text for a model, within a token budget."""

from __future__ import annotations

from sandstream_memory.excerpts import encoded, shortened_bytes
from sandstream_memory.rollouts import lines_of

BYTES_PER_TOKEN = 4
MAX_ROLLOUT_TOKENS = 150_000


def estimate_tokens(text: str) -> int:
    return -(-len(encoded(text)) // BYTES_PER_TOKEN)


def truncated(text: str, max_tokens: int) -> str:
    """The text, or its head and tail with a notice between them; never more than ``max_tokens``."""
    tokens = estimate_tokens(text)
    if tokens <= max_tokens:
        return text
    note = f"\n[... about {tokens - max_tokens} of {tokens} tokens left out here ...]\n"
    return shortened_bytes(text, max_tokens * BYTES_PER_TOKEN, note)


def render_rollout(existing: bytes, max_tokens: int = MAX_ROLLOUT_TOKENS) -> str:
    """The lines of a rollout's file; if too long, a notice and then its head and tail."""
    text = "\n".join(line.decode() for line in lines_of(existing))
    tokens = estimate_tokens(text)
    if tokens <= max_tokens:
        return text
    notice = (
        f"[This rollout has about {tokens} tokens; at most {max_tokens} of them follow: "
        "its beginning and its end.]\n"
    )
    return notice + truncated(text, max_tokens - estimate_tokens(notice))
