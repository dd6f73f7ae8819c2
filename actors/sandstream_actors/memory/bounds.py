"""How big the files of a memory may become by what agents and people change."""

from __future__ import annotations

from typing import Final

from sandstream_memory.acceptance import MAX_HANDBOOK_BYTES, MAX_SUMMARY_BYTES
from sandstream_memory.layout import MEMORY_FILE, SUMMARY_FILE, Files

_LIMITS: Final = {MEMORY_FILE: MAX_HANDBOOK_BYTES, SUMMARY_FILE: MAX_SUMMARY_BYTES}
"""A consolidation could not take over more, and the digest is in the instructions of every run."""


def grown_too_big(before: Files, after: Files) -> dict[str, str]:
    """The files that a change makes bigger than they may be, and the problem in words. What was
    too big before may become smaller.
    """
    found: dict[str, str] = {}
    for path, limit in _LIMITS.items():
        size = len(after.get(path, b""))
        if size > max(limit, len(before.get(path, b""))):
            found[path] = f"{path!r}: it would have {size} bytes; at most {limit} are kept"
    return found
