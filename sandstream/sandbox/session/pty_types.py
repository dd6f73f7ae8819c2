"""What a running command answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PtyExecUpdate:
    """A command's new output and how it stands: ``process_id`` while it runs, else its code."""

    process_id: int | None
    output: bytes
    exit_code: int | None
    original_token_count: int | None
