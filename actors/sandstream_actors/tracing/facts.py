"""What there is to know about a run besides its spans: the row that lists and sums are made of."""

from __future__ import annotations

import msgspec
from sandstream_bus.messages import ErrorInfo, TokenUsage


class RunFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run as far as its log goes."""

    run: str
    trace_id: str
    root: str
    """The run at the top of its tree: itself, if it has no parent."""
    parent: str = ""
    workflow: str = ""
    group_id: str = ""
    session: str = ""
    """The conversation that it continues."""
    key: str = ""
    agent: str = ""
    """The agent it is with now."""
    first_agent: str = ""
    model: str = ""
    """The model that answered last."""
    pool: str = ""
    status: str = "running"
    """``running``, ``waiting`` (for people), or how it ended."""
    started_ns: int = 0
    ended_ns: int = 0
    turns: int = 0
    usage: TokenUsage = TokenUsage()
    """With what its child runs have used, once these have ended."""
    tool_calls: int = 0
    children: int = 0
    retries: int = 0
    """Model calls that had to be repeated, and messages that were delivered again."""
    error: ErrorInfo | None = None
    last_seq: int = 0
    truncated: bool = False
    """The log has lost its beginning."""
    traced: bool = True
    """False: the caller wants no trace of it. Nothing may be kept or exported then."""

    @property
    def is_over(self) -> bool:
        return self.status not in ("running", "waiting")
