"""What people and programs see of a session: typed, frozen views of its state."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from sandstream_bus.wire.model_records import TokenUsage
from sandstream_bus.wire.sessions import (
    IDLE_S,
    ActiveTurn,
    ForkOrigin,
    QueuedMessage,
    Refusal,
    SessionLife,
    SessionState,
    TakePolicy,
)
from sandstream_bus.wire.subjects import session_sandbox

SessionActivity = Literal[
    "needs you",
    "working",
    "waiting",
    "failed",
    "idle",
    "paused",
    "sleeping",
    "archived",
    "destroyed",
]
"""What a session does now, in the order in which lists show them."""
ACTIVITIES: tuple[SessionActivity, ...] = (
    "needs you",
    "working",
    "waiting",
    "failed",
    "idle",
    "paused",
    "sleeping",
    "archived",
    "destroyed",
)
_FAILED = ("failed", "max_turns", "guardrail", "budget")


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session at one moment."""

    id: str
    """The id of the session."""
    title: str
    """The title for people."""
    agent: str
    """The name of its agent."""
    life: SessionLife
    """What the session may do: ``open``, ``paused``, ``archived``, ``destroying``, ``destroyed``.
    """
    activity: SessionActivity
    """What it does now: ``needs you`` (a call waits for a person), ``working``, ``waiting`` (it
    cannot go on yet: see ``doing``), ``failed`` (its last turn did), ``idle``, ``paused``,
    ``sleeping`` (its files are in a checkpoint and no box runs), ``archived``, ``destroyed``."""
    doing: str = ""
    """More about that, in a few words; empty: nothing to add."""
    provider: str = ""
    """The provider of the workspace; empty: the agent has none."""
    options: dict[str, Any] = {}
    """The options of that provider that differ from the agent's own."""
    box: Literal["none", "open", "closing", "asleep"] = "none"
    """Whether a box may be running; ``asleep``: all files are in the last checkpoint."""
    sandbox: str = ""
    """The name of the sandbox, for ``sandstream sandboxes``; empty: none."""
    checkpoint: str = ""
    """The last checkpoint of the workspace; empty: none yet."""
    queue: list[QueuedMessage] = []
    """Messages that wait for a turn, oldest first."""
    active: ActiveTurn | None = None
    """The turn at work; ``None``: none."""
    turn: int = 0
    """The number of the last finished turn that counts."""
    begun: int = 0
    """The number of the last turn that began."""
    status: str = ""
    """How the last turn ended; empty: there was none."""
    said: str = ""
    """The beginning of the last answer or error."""
    usage: TokenUsage = TokenUsage()
    """The tokens of all finished turns."""
    origin: ForkOrigin | None = None
    """Of a fork: the session and turn that it comes from."""
    switching_to: str = ""
    """The provider that the workspace is moving to; empty: it stays."""
    rewinding_to: int | None = None
    """The turn that the session is going back to; ``None``: none."""
    idle_s: float | None = IDLE_S
    """Seconds without work before the workspace sleeps; ``None``: never."""
    take: TakePolicy = "all"
    """Whether a turn takes all waiting messages, or one."""
    created: str = ""
    """When it was created, in RFC 3339."""
    changed: str = ""
    """When a person or a turn last changed it, in RFC 3339."""
    trouble: str = ""
    """What keeps the session from its work, for people; empty: nothing."""
    refusal: Refusal | None = None
    """The last request that was refused; ``None``: none is remembered."""

    @property
    def is_over(self) -> bool:
        """Whether the session is destroyed, or about to be."""
        return self.life in ("destroying", "destroyed")


def info_of(state: SessionState, *, questions: int = 0) -> SessionInfo:
    """The view of a state; ``questions``: how many calls of the turn at work wait for people."""
    workspace = state.workspace
    activity, doing = _activity(state, questions)
    return SessionInfo(
        id=state.session,
        title=state.title,
        agent=state.agent,
        life=state.life,
        activity=activity,
        doing=doing,
        provider=workspace.provider if workspace else "",
        options=workspace.options if workspace else {},
        box=workspace.box if workspace else "none",
        sandbox=session_sandbox(state.session, workspace.generation) if workspace else "",
        checkpoint=workspace.tree if workspace else "",
        queue=state.queue,
        active=state.active,
        turn=state.turn,
        begun=state.begun,
        status=state.status,
        said=state.said,
        usage=state.usage,
        origin=state.origin,
        switching_to=state.switch.provider if state.switch else "",
        rewinding_to=state.rewind.turn if state.rewind else None,
        idle_s=state.idle_s,
        take=state.take,
        created=state.created,
        changed=state.changed,
        trouble=state.trouble,
        refusal=state.refused[-1] if state.refused else None,
    )


def _activity(state: SessionState, questions: int) -> tuple[SessionActivity, str]:
    if state.life in ("destroying", "destroyed"):
        return "destroyed", "ending" if state.life == "destroying" else ""
    if questions and state.active is not None:
        return "needs you", f"turn {state.active.number} asks for approval"
    is_due = state.active or state.fork or state.switch or state.rewind or state.queue
    if state.trouble and is_due:
        return "waiting", state.trouble
    if state.active is not None:
        stops = " stops" if state.active.interrupted else ""
        return "working", f"turn {state.active.number}{stops}"
    if state.fork is not None:
        return "working", f"copies {state.fork.source}"
    if state.switch is not None:
        return "working", f"moves to {state.switch.provider}"
    if state.rewind is not None:
        return "working", f"goes back to turn {state.rewind.turn}"
    if state.life == "archived":
        return "archived", ""
    if state.life == "paused":
        return "paused", ""
    if state.queue:
        return "waiting", "for a sessions actor"
    if state.opening:
        return "working", "opens its workspace"
    if state.status in _FAILED:
        return "failed", state.said
    if state.workspace is not None and state.workspace.box == "asleep":
        return "sleeping", ""
    return "idle", ""
