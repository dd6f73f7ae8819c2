"""Every message, one tagged struct each, one union per family. JSON on the wire.

The tag (``type``) is written out and never changes; fields are added with defaults; unknown fields
are ignored. The subject selects the receiver, the ``type`` says what happened (see subjects.py).
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
    """A failure as data: what failed, on what, and which exception the caller should raise."""

    code: str
    message: str
    data: dict[str, Any] = {}
    raised_by: str = ""
    """The call of the user's code that raised it, as ``<run>/<call>``."""


# --- tasks and agents -----------------------------------------------------------------------------


class Task(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A task, published to ``<p>.task.<agent>`` by any permitted user. Only ``input`` is required;
    there is no tag.

    Unknown fields are refused: people write tasks by hand, and a misspelled limit would have no
    effect.
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
    """The conversation that the run continues."""
    session_busy: Literal["queue", "refuse"] = "queue"
    budget: Budget | None = None
    approval_expires_s: Span | None = None


class AgentRegistered(Message, frozen=True, kw_only=True, tag="agent.registered"):
    """A worker offers this agent. The last registration of a name counts."""

    graph: GraphSpec
    options: RunOptions = RunOptions()
    pool: str = "main"
    """The harness pool that takes the run's turns."""


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
    """A run continues from a saved state in a log that did not contain it: its events so far."""

    events: list[PastEvent]
    pool: str
    host: str


class TurnRequested(Message, frozen=True, kw_only=True, tag="turn.requested"):
    """Take the turn ``turn``: after a wait, because another agent continues the run, or because the
    run's turn in its conversation has come.
    """

    turn: int
    agent: str
    reason: Literal["waited", "handoff", "session"] = "waited"
    agents: dict[str, AgentSpec] = {}
    """Agents that the run did not contain before."""
    rewrite: Rewrite | None = None


class ConversationOpened(Message, frozen=True, kw_only=True, tag="conversation.opened"):
    """The run holds its conversation; this is the history."""

    history: list[Raw]


class InputStaged(Message, frozen=True, kw_only=True, tag="input.staged"):
    """More input for an open run; its next model call includes it."""

    input: str | list[Raw]
    by: str = ""


class RunReopened(Message, frozen=True, kw_only=True, tag="run.reopened"):
    """An ended run continues: it was ended by a parked message, it is resumed from a saved state,
    or, with ``retry``, its failed step is repeated.
    """

    reason: str
    retry: bool = False
    by: str = ""
    forgets: list[str] = []
    """Calls whose outcomes no longer count."""
    drops_answer: bool = False
    """The model's last answer does not count either: the model is asked again."""
    max_turns: int | msgspec.UnsetType | None = msgspec.UNSET
    """The limit of turns from now on; None: no limit."""
    budget: Budget | None = None
    """The budget from here on; left out: as before."""
    attempt: int = 0
    """Of a child run: the attempt of its parent's call that it answers from now on."""


class RetryRequested(Message, frozen=True, kw_only=True, tag="retry.requested"):
    """A request to continue a failed run from the step that failed. The decision in the log is
    ``run.reopened``.
    """

    reason: str = ""
    max_turns: int | msgspec.UnsetType | None = msgspec.UNSET
    budget: Budget | None = None


class RunMoved(Message, frozen=True, kw_only=True, tag="run.moved"):
    """The run's process is gone; another one takes its turns and hosts its callables from now on.

    Calls of the old process without a result are requested again.
    """

    pool: str
    host: str
    parent_pool: str = ""
    """For a child run: the pool that now waits for its outcome."""
    stream: bool | None = None
    """Whether the caller now wants the model's stream events; None: unchanged."""


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
    """Failed requests earlier in this turn."""


class ModelDeferred(Message, frozen=True, kw_only=True, tag="model.deferred"):
    """The model cannot answer now (rate limit). No process waits; a timer requests the next try."""

    turn: int
    attempt: int
    delay_s: float
    waited_s: float
    error: ErrorInfo
    duration_ms: int = 0


class CallRequested(Message, frozen=True, kw_only=True, tag="call.requested"):
    """A request to another actor: to the tool host for the user's code, to the sandbox actor for
    work in a sandbox. The subject selects the receiver; ``kind`` says what to do (see calls.py).
    For all kinds except ``tool`` the receiver reads the rest from the run's log.
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
    """The run's usage so far, for the tool's context."""
    error: ErrorInfo | None = None
    sandbox: str = ""
    """The sandbox in which the call runs."""
    cwd: str = ""
    """Where relative paths start, below the sandbox's root."""
    user: str = ""
    """The sandbox's user that does it; empty: the sandbox's own."""
    child: str = ""
    """The child run that the call refers to."""
    value: Raw = NO_JSON
    """The final output to check."""
    attempt: int = 0
    """How often the outcome of this call was forgotten because the run was retried."""

    @property
    def traits(self) -> CallTraits:
        return CALLS[self.kind]


class CallStarted(Message, frozen=True, kw_only=True, tag="call.started"):
    call: str
    host: str


class CallFinished(Message, frozen=True, kw_only=True, tag="call.finished"):
    """The only outcome of a call. The model reads an ``error`` that has an ``output``; an ``error``
    without one ends the run.
    """

    call: str
    kind: CallKind
    turn: int
    output: Raw = NO_JSON
    """For a tool: the text or content parts that the model sees. Else: the call's own result
    struct.
    """
    value: Raw = NO_JSON
    """The tool's return value as JSON, if it may become the final output. For guardrails that
    refused a tool's output: the text that replaces it.
    """
    custom_data: Raw = NO_JSON
    error: ErrorInfo | None = None
    duration_ms: int = 0
    full_output: str = ""
    """The digest of the object that holds the whole output, where ``output`` is shortened."""
    full_output_bytes: int = 0
    usage: TokenUsage = TokenUsage()
    """Of a child run: the usage of it and its own children."""
    turns: int = 0
    tool_calls: int = 0
    child: str = ""
    attempt: int = 0
    """Of a child run: the attempt of the call that it ends."""
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
    """The child run that waits, if the request is shown in a run above it."""
    expires_s: float | None = None


class ApprovalDecided(Message, frozen=True, kw_only=True, tag="approval.decided"):
    """A person's answer. The first one for a call counts."""

    call: str
    """The id of the call in the log (``t1-0``), or the model's id of the call."""
    approve: bool
    message: str | None = None
    """For a refusal: the text for the model instead of the default."""
    always: bool = False
    """Also for later calls of this tool by this agent."""
    by: str = ""
    run: str = ""
    """The child run whose call it is; empty: this run."""
    expired: bool = False
    """The approval expired without an answer."""


class RunWaiting(Message, frozen=True, kw_only=True, tag="run.waiting"):
    """The run waits for a person: no process and no sandbox works for it until then."""

    turn: int
    approvals: list[ApprovalRequested]
    """All open approvals, including those of child runs."""


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
    """The memory for which this run is to be remembered, or of which it is a phase."""
    task: int = 0
    """The sequence of the task in the stream of requests, if the task was refused before its run
    began.
    """


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
    """Replaces a message that is too big for the log: its bytes are in the object store."""

    of: str
    digest: str
    size_bytes: int


class Parked(Message, frozen=True, kw_only=True, tag="parked"):
    """A message that no worker could handle, with the reason. It is kept until an operator
    re-drives it.
    """

    subject: str
    sequence: int
    consumer: str
    reason: str
    deliveries: int
    body: str
    """The original bytes: UTF-8 text unchanged, other bytes as ``base64:``."""
    body_digest: str = ""
    """Instead of ``body``, for a big message: the object with its bytes."""
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
