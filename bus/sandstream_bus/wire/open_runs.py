"""The entries of the index of open runs, on ``<p>.open.<run>``. They have no tag."""

from __future__ import annotations

import msgspec

from sandstream_bus.wire.messages import ApprovalRequested


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person."""

    asked: ApprovalRequested
    since: str
    """When the approval was requested, RFC 3339."""


class OpenRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields by which a list selects open runs. All are hints; the log decides."""

    agent: str = ""
    pool: str = ""
    parent: str = ""
    root: str = ""
    session: str = ""
    since: str = ""
    """When the run was opened, RFC 3339; empty: when this entry was stored."""
    waited: bool = False
    """The run has waited for a person at least once, and may do so now."""
    at: int = 0
    """The run's last event with which it waits; 0: unknown."""
    questions: list[Question] = []
    """The approvals for which it waits; empty if they are too big for the index."""
    ended: bool = False
    """The run has ended; this entry removes itself."""
