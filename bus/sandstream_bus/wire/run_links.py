"""Parts of a run's first events: the call that it answers, and the contents of a saved state."""

from __future__ import annotations

import msgspec
from msgspec import Raw


class ParentLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call that a child run answers."""

    run: str
    call: str
    turn: int
    pool: str
    """The harness pool that waits for the outcome."""
    root: str
    """The run at the top of the tree."""
    depth: int = 1
    """How many runs are above this one."""
    agent: str = ""
    tool: str = ""
    call_id: str = ""
    arguments: str = ""
    asked_at: int = 0
    """The last event of the parent's log when the parent started this run."""


class PastEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a log that is not here, as part of a saved state."""

    subject: str
    body: Raw
    sequence: int = 0
    """The event's sequence in the original log."""
