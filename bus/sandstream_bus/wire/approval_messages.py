"""Questions to people in a run's log: which call waits, what was decided, who waits for it."""

from __future__ import annotations

from sandstream_bus.wire.message_base import Message


class ApprovalRequested(Message, frozen=True, kw_only=True, tag="approval.requested"):
    """A call waits for a person."""

    call: str
    """The id of the call in the log: ``t1-0`` is the first of turn 1."""
    turn: int
    """The turn that the call belongs to."""
    agent: str
    """The key of the agent that calls the tool."""
    name: str
    """The name of the tool."""
    call_id: str
    """The id that the model gave the call."""
    arguments: str = ""
    """The model's arguments as JSON text."""
    custom: bool = False
    """A freeform tool: ``arguments`` is plain text."""
    run: str = ""
    """The child run that waits, if the request is shown in a run above it."""
    expires_s: float | None = None
    """How many seconds the call waits; None: without end."""


class ApprovalDecided(Message, frozen=True, kw_only=True, tag="approval.decided"):
    """A person's answer. The first one for a call counts."""

    call: str
    """The id of the call in the log (``t1-0``), or the model's id of the call."""
    approve: bool
    """Whether the call may be made."""
    message: str | None = None
    """For a refusal: the text for the model instead of the default."""
    always: bool = False
    """Also for later calls of this tool by this agent."""
    by: str = ""
    """Who decided, as far as it is known."""
    run: str = ""
    """The child run whose call it is; empty: this run."""
    expired: bool = False
    """The approval expired without an answer."""


class RunWaiting(Message, frozen=True, kw_only=True, tag="run.waiting"):
    """The run waits for a person: no process and no sandbox works for it until then."""

    turn: int
    """The turn that the run is in."""
    approvals: list[ApprovalRequested]
    """All open approvals, including those of child runs."""


class ChildWaiting(Message, frozen=True, kw_only=True, tag="child.waiting"):
    """A child run waits for a person; sent to its parent."""

    call: str
    """The parent's call that the child run answers."""
    turn: int
    """The turn of that call."""
    child: str
    """The id of the child run."""
    approvals: list[ApprovalRequested]
    """The open approvals of the child run and those below it."""
