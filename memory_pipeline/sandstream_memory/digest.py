"""The instructions about its memory that an agent gets: the digest, and how to find more."""

from __future__ import annotations

import hashlib

from sandstream_memory.excerpts import encoded
from sandstream_memory.prompts import prompt
from sandstream_memory.transcripts import truncated

PROMPT_VERSION = "reading_v1"
MAX_SUMMARY_TOKENS = 15_000


def memory_section(summary: str, *, memories_dir: str, live_update: bool) -> str | None:
    """A section of the agent's instructions; ``None`` if the digest is empty."""
    summary = summary.strip()
    if not summary:
        return None
    updating = prompt("reading_live_v1" if live_update else "reading_only_v1")
    text = prompt(PROMPT_VERSION).replace("{updating}", updating)
    text = text.replace("{memories_dir}", memories_dir.rstrip("/"))
    digest = truncated(summary, MAX_SUMMARY_TOKENS)
    fence = f"DIGEST-{hashlib.sha256(encoded(digest)).hexdigest()[:32]}"
    return text.replace("{fence}", fence).replace("{summary}", digest)
