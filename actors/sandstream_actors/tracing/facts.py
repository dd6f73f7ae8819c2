"""The facts about a run besides its spans: a row for lists and sums."""

from __future__ import annotations

import msgspec
from sandstream_bus.wire.messages import ErrorInfo, TokenUsage


class RunFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run, as far as its log goes."""

    run: str
    trace_id: str
    root: str
    """The run at the top of the tree; the run itself if it has no parent."""
    parent: str = ""
    workflow: str = ""
    group_id: str = ""
    session: str = ""
    """The conversation that the run continues."""
    key: str = ""
    agent: str = ""
    """The agent that is active now."""
    first_agent: str = ""
    model: str = ""
    """The model that answered last."""
    pool: str = ""
    status: str = "running"
    """``running``, ``waiting`` (for approvals), or how it ended."""
    started_ns: int = 0
    ended_ns: int = 0
    turns: int = 0
    usage: TokenUsage = TokenUsage()
    """Includes the usage of child runs that have ended."""
    tool_calls: int = 0
    children: int = 0
    retries: int = 0
    """Requests that the model client repeated."""
    takeovers: int = 0
    """How often another process continued after one was lost (``sandstream_bus.wire.attempts``)."""
    error: ErrorInfo | None = None
    last_seq: int = 0
    truncated: bool = False
    """Whether the log has lost the beginning of the run."""
    traced: bool = True
    """``False`` if the caller disabled tracing: then nothing may be stored or exported."""

    @property
    def is_over(self) -> bool:
        return self.status not in ("running", "waiting")
