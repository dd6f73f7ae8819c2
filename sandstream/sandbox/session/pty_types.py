"""The answer of a running command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PtyExecUpdate:
    """A command's new output and status: ``process_id`` while it runs, then its exit code."""

    process_id: int | None
    output: bytes
    exit_code: int | None
    original_token_count: int | None
