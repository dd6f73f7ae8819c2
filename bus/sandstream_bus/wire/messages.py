"""Every message, one tagged struct each, one union per family. JSON on the wire.

The tag (``type``) is written out and never changes; fields are added with defaults; unknown fields
are ignored. The subject says who is woken, the ``type`` says what happened (see subjects.py).
Headers carry the metadata (headers.py); the time of an event is the server's and is not repeated in
the body.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Raw

from sandstream_bus.wire.calls import CALLS, CallKind, CallTraits
from sandstream_bus.wire.host_results import (
    ChildInput,
    GuardrailRecord,
    HandedOff,
    History,
    ItemRecord,
    Prepared,
    Reviewed,
    Rewrite,
    StopDecision,
)
from sandstream_bus.wire.memory_specs import MemoryPart
from sandstream_bus.wire.model_records import ModelRetry, TokenUsage
from sandstream_bus.wire.run_links import ParentLink, PastEvent
from sandstream_bus.wire.specs import (
    NO_JSON,
    AgentSpec,
    Budget,
    GraphSpec,
    RunOptions,
    Span,
    ToolSpec,
)


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all tagged messages."""


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure as data: what, on what, and what the caller should raise."""

    code: str
    message: str
    data: dict[str, Any] = {}
    raised_by: str = ""
    """The call of the user's code that raised it, as ``<run>/<call>``."""


# --- tasks and agents -----------------------------------------------------------------------------


class Task(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What anybody may publish to ``<p>.task.<agent>``. Only ``input`` is needed; no tag.

    An unknown field is refused: people write tasks by hand, and a misspelt limit would be none.
    """

    input: str | list[Raw]
    context: Raw = NO_JSON
    max_turns: int | msgspec.UnsetType | None = msgspec.UNSET
    stream: bool = False
    previous_response_id: str | None = None
    conversation_id: str | None = None
    group_id: str | None = None
    metadata: dict[str, Any] = {}
    session: str | None = None
    """The conversation that it continues."""
    session_busy: Literal["queue", "refuse"] = "queue"
    budget: Budget | None = None
    approval_expires_s: Span | None = None


class AgentRegistered(Message, frozen=True, kw_only=True, tag="agent.registered"):
    """A worker offers this agent. The last registration of a name counts."""

    graph: GraphSpec
    options: RunOptions = RunOptions()
    pool: str = "main"
    """The harness pool that takes its turns."""


# --- the events of a run --------------------------------------------------------------------------


class RunStarted(Message, frozen=True, kw_only=True, tag="run.started"):
    graph: GraphSpec
    input: list[Raw]
    options: RunOptions = RunOptions()
    pool: str
    context: Raw = NO_JSON
    key: str | None = None
    parent: ParentLink | None = None
    is_text: bool = False
    """``input`` is one plain text of the caller's."""


class RunRestored(Message, frozen=True, kw_only=True, tag="run.restored"):
    """A run goes on from a saved state in a log that did not have it: its events so far."""

    events: list[PastEvent]
    pool: str
    host: str


class TurnRequested(Message, frozen=True, kw_only=True, tag="turn.requested"):
    """Take the turn ``turn``: after a wait, because the run goes on with another agent, or because
    its conversation is free.
    """

    turn: int
    agent: str
    reason: Literal["waited", "handoff", "session"] = "waited"
    agents: dict[str, AgentSpec] = {}
    """Agents that the run did not know before."""
    rewrite: Rewrite | None = None


class ConversationOpened(Message, frozen=True, kw_only=True, tag="conversation.opened"):
    """The run has its conversation for itself; this is what was said before."""

    history: list[Raw]


class InputStaged(Message, frozen=True, kw_only=True, tag="input.staged"):
    """More input for a run under way; its next model call sees it."""

    input: str | list[Raw]
    by: str = ""


class RunReopened(Message, frozen=True, kw_only=True, tag="run.reopened"):
    """A run that has ended goes on: one that a parked message ended, one that is resumed from a
    saved state, or, with ``retry``, one whose failed step is asked for again.
    """

    reason: str
    retry: bool = False
    by: str = ""
    forgets: list[str] = []
    """Calls whose outcomes do not count any more."""
    drops_answer: bool = False
    """The model's last answer does not count either: the model is asked again."""
    max_turns: int | msgspec.UnsetType | None = msgspec.UNSET
    """The limit of turns from here on; None: no limit."""
    budget: Budget | None = None
    """The budget from here on; left out: as before."""
    attempt: int = 0
    """Of a child run: which attempt of its parent's call it answers from here on."""


class RetryRequested(Message, frozen=True, kw_only=True, tag="retry.requested"):
    """Somebody wants a run that failed to go on from the step that failed. Only a request; what
    comes of it in the log is ``run.reopened``.
    """

    reason: str = ""
    max_turns: int | msgspec.UnsetType | None = msgspec.UNSET
    budget: Budget | None = None


class RunMoved(Message, frozen=True, kw_only=True, tag="run.moved"):
    """The run's process is gone; another one takes its turns and hosts its callables from here.

    What was asked of the old one and has no result is asked again.
    """

    pool: str
    host: str
    parent_pool: str = ""
    """For a child run: the pool that waits for its outcome from here."""
    stream: bool | None = None
    """Whether its caller wants to see the model's stream events from here; None: as before."""


class ModelAnswered(Message, frozen=True, kw_only=True, tag="model.answered"):
    turn: int
    agent: str
    output: list[Raw]
    usage: TokenUsage
    response_id: str | None = None
    request_id: str | None = None
    model: str | None = None
    raw_usage: Raw = NO_JSON
    disabled_tools: list[str] = []
    """Tools that were not offered, where the tool host asked the model."""
    listed_tools: list[ToolSpec] = []
    """Tools that were listed for this turn, where the tool host asked the model."""
    upto: int = 0
    """The last event that the model's request could include; 0: all before this one."""
    duration_ms: int = 0
    retries: list[ModelRetry] = []
    """What had failed before, within this turn."""


class ModelDeferred(Message, frozen=True, kw_only=True, tag="model.deferred"):
    """The model cannot answer now (rate limit): nobody waits in memory, a timer asks again."""

    turn: int
    attempt: int
    delay_s: float
    waited_s: float
    error: ErrorInfo
    duration_ms: int = 0


class CallRequested(Message, frozen=True, kw_only=True, tag="call.requested"):
    """Ask for one thing: of the tool host what only the user's code can do, of the sandbox actor
    what happens in a sandbox. The subject says whom, ``kind`` says what (see calls.py). All but
    ``tool`` read the run's log for the rest.
    """

    call: str
    kind: CallKind
    turn: int
    agent: str
    name: str = ""
    call_id: str = ""
    """The id that the model gave the call."""
    arguments: str = ""
    at_most_once: bool = False
    reply_pool: str
    """The harness pool that waits for the result."""
    usage: TokenUsage = TokenUsage()
    """What the run has used so far, for the tool's context."""
    error: ErrorInfo | None = None
    sandbox: str = ""
    """The sandbox that it is for."""
    cwd: str = ""
    """Where relative paths start, below the sandbox's root."""
    user: str = ""
    """The sandbox's user that does it; empty: the sandbox's own."""
    child: str = ""
    """The child run that it is about."""
    value: Raw = NO_JSON
    """The final output that is to be checked."""
    attempt: int = 0
    """How often its outcome was forgotten because the run was retried."""

    @property
    def traits(self) -> CallTraits:
        return CALLS[self.kind]


class CallStarted(Message, frozen=True, kw_only=True, tag="call.started"):
    call: str
    host: str


class CallFinished(Message, frozen=True, kw_only=True, tag="call.finished"):
    """The one outcome of a call. ``error`` with ``output``: told to the model; without: ends the
    run.
    """

    call: str
    kind: CallKind
    turn: int
    output: Raw = NO_JSON
    """For a tool: the text or content parts that the model sees. Else: the call's own result
    struct.
    """
    value: Raw = NO_JSON
    """The tool's return value as JSON, where it may become the final output. Of guardrails that
    refused a tool's output: the text that is kept instead of it.
    """
    custom_data: Raw = NO_JSON
    error: ErrorInfo | None = None
    duration_ms: int = 0
    full_output: str = ""
    """The digest of the object that holds the whole output, where ``output`` is shortened."""
    full_output_bytes: int = 0
    usage: TokenUsage = TokenUsage()
    """Of a child run: what it and its own children have used."""
    turns: int = 0
    tool_calls: int = 0
    child: str = ""
    attempt: int = 0
    """Of a child run: which attempt of the call it ends."""
    guardrails: list[GuardrailRecord] = []

    @property
    def traits(self) -> CallTraits:
        return CALLS[self.kind]


class CancelRequested(Message, frozen=True, kw_only=True, tag="cancel.requested"):
    mode: Literal["immediate", "after_turn"] = "immediate"
    reason: str = ""
    code: Literal["cancelled", "budget"] = "cancelled"
    budget: Literal["seconds", "depth"] = "seconds"


# --- people ---------------------------------------------------------------------------------------


class ApprovalRequested(Message, frozen=True, kw_only=True, tag="approval.requested"):
    """A call waits for a person."""

    call: str
    turn: int
    agent: str
    name: str
    call_id: str
    arguments: str = ""
    custom: bool = False
    """A freeform tool: ``arguments`` is plain text."""
    run: str = ""
    """The child run that waits, where the request is shown above it."""
    expires_s: float | None = None


class ApprovalDecided(Message, frozen=True, kw_only=True, tag="approval.decided"):
    """A person's answer. The first one for a call counts."""

    call: str
    """The id of the call in the log (``t1-0``), or the one that the model gave it."""
    approve: bool
    message: str | None = None
    """What the model reads instead of the default, if it is a refusal."""
    always: bool = False
    """Also for later calls of this tool by this agent."""
    by: str = ""
    run: str = ""
    """The child run whose call it is; empty: this run's own."""
    expired: bool = False
    """Nobody answered in time."""


class RunWaiting(Message, frozen=True, kw_only=True, tag="run.waiting"):
    """Nothing happens any more until a person answers: no process and no sandbox works for it."""

    turn: int
    approvals: list[ApprovalRequested]
    """All that are open, those of child runs included."""


class ChildWaiting(Message, frozen=True, kw_only=True, tag="child.waiting"):
    """A child run waits for a person; sent to its parent."""

    call: str
    turn: int
    child: str
    approvals: list[ApprovalRequested]


DoneStatus = Literal["completed", "failed", "cancelled", "max_turns", "guardrail", "budget"]


class RunDone(Message, frozen=True, kw_only=True, tag="run.done"):
    status: DoneStatus
    agent: str
    turns: int
    usage: TokenUsage
    output: Raw = NO_JSON
    output_from: Literal["model", "tool", "handler"] = "model"
    error: ErrorInfo | None = None
    memory: MemoryPart | None = None
    """The run is to be remembered, or was itself a phase of that."""
    task: int = 0
    """Where the task is among the requests, if it was refused before its run began."""


RunEvent = (
    RunStarted
    | RunRestored
    | ConversationOpened
    | InputStaged
    | ApprovalRequested
    | ApprovalDecided
    | RunWaiting
    | ChildWaiting
    | TurnRequested
    | RunReopened
    | RunMoved
    | ModelAnswered
    | ModelDeferred
    | CallRequested
    | CallStarted
    | CallFinished
    | CancelRequested
    | RunDone
)
"""Everything that can stand in a run's log."""


# --- the rest -------------------------------------------------------------------------------------


class Claim(Message, frozen=True, kw_only=True, tag="claim"):
    """Stands for a message that is too big for the log: its bytes are in the object store."""

    of: str
    digest: str
    size_bytes: int


class Parked(Message, frozen=True, kw_only=True, tag="parked"):
    """A message that no worker could handle, with the reason, kept until somebody re-drives it."""

    subject: str
    sequence: int
    consumer: str
    reason: str
    deliveries: int
    body: str
    """The original bytes: text as it is, anything else as ``base64:``."""
    body_digest: str = ""
    """Instead of ``body``, for a big message: the object that holds its bytes."""
    headers: dict[str, str] = {}


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model stream event on the live subject. ``n`` counts within a turn's attempt."""

    turn: int
    n: int
    event: Raw
    attempt: int = 1


__all__ = [
    "AgentRegistered",
    "AgentSpec",
    "ApprovalDecided",
    "ApprovalRequested",
    "Budget",
    "CallFinished",
    "CallKind",
    "CallRequested",
    "CallStarted",
    "CancelRequested",
    "ChildInput",
    "ChildWaiting",
    "Claim",
    "ConversationOpened",
    "DoneStatus",
    "ErrorInfo",
    "GraphSpec",
    "GuardrailRecord",
    "HandedOff",
    "History",
    "InputStaged",
    "ItemRecord",
    "LiveEvent",
    "Message",
    "ModelAnswered",
    "ModelDeferred",
    "ModelRetry",
    "ParentLink",
    "Parked",
    "PastEvent",
    "Prepared",
    "RetryRequested",
    "Reviewed",
    "Rewrite",
    "RunDone",
    "RunEvent",
    "RunMoved",
    "RunOptions",
    "RunReopened",
    "RunRestored",
    "RunStarted",
    "RunWaiting",
    "StopDecision",
    "Task",
    "TokenUsage",
    "TurnRequested",
]
