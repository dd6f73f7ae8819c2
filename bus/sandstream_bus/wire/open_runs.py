"""The entries of the index of open runs, on ``<p>.open.<run>``. They have no tag."""

from __future__ import annotations

import msgspec

from sandstream_bus.wire.messages import ApprovalRequested


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person."""

    asked: ApprovalRequested
    since: str
    """When it was asked, RFC 3339."""


class OpenRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a list needs to choose among open runs. All of it is a hint; the log decides."""

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
    """The last event of the run that says that it waits; 0: not known here."""
    questions: list[Question] = []
    """What it waits for there; empty if that is too much for an index."""
    ended: bool = False
    """The run has ended; this entry removes itself."""
