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

from sandstream_bus.wire.approval_messages import (
    ApprovalDecided,
    ApprovalRequested,
    ChildWaiting,
    RunWaiting,
)
from sandstream_bus.wire.call_messages import CallFinished, CallRequested, CallStarted
from sandstream_bus.wire.calls import CallKind
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
from sandstream_bus.wire.message_base import ErrorInfo, Message
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
    """A run begins. The event contains all that it takes to continue the run elsewhere."""

    graph: GraphSpec
    """The agents of the run with their tools, and which of them begins."""
    input: list[Raw]
    """The input items."""
    options: RunOptions = RunOptions()
    """The limits and settings of the run."""
    pool: str
    """The harness pool that takes the turns."""
    context: Raw = NO_JSON
    """The caller's context as JSON, for deployed agents."""
    key: str | None = None
    """The caller's own key of the task, if there is one."""
    parent: ParentLink | None = None
    """Of a child run: the call that it answers."""
    is_text: bool = False
    """``input`` is one plain text of the caller's."""


class RunRestored(Message, frozen=True, kw_only=True, tag="run.restored"):
    """A run continues from a saved state in a log that did not contain it: its events so far."""

    events: list[PastEvent]
    """The events of the saved state, oldest first."""
    pool: str
    """The harness pool that takes the turns."""
    host: str
    """The pool of the process that hosts the callables."""


class TurnRequested(Message, frozen=True, kw_only=True, tag="turn.requested"):
    """Take the turn ``turn``: after a wait, because another agent continues the run, or because the
    run's turn in its conversation has come.
    """

    turn: int
    """The number of the turn; the first is 1."""
    agent: str
    """The key of the agent that takes it."""
    reason: Literal["waited", "handoff", "session"] = "waited"
    """Why the turn was not taken at once."""
    agents: dict[str, AgentSpec] = {}
    """Agents that the run did not contain before."""
    rewrite: Rewrite | None = None
    """The conversation after the filter of a handoff."""


class ConversationOpened(Message, frozen=True, kw_only=True, tag="conversation.opened"):
    """The run holds its conversation; this is the history."""

    history: list[Raw]
    """The items of the conversation before this run, oldest first."""


class InputStaged(Message, frozen=True, kw_only=True, tag="input.staged"):
    """More input for an open run; its next model call includes it."""

    input: str | list[Raw]
    """The user's message, or a list of items."""
    by: str = ""
    """Who sent it, as far as it is known."""


class RunReopened(Message, frozen=True, kw_only=True, tag="run.reopened"):
    """An ended run continues: it was ended by a parked message, it is resumed from a saved state,
    or, with ``retry``, its failed step is repeated.
    """

    reason: str
    """Why, for people."""
    retry: bool = False
    """Whether a failed step is repeated."""
    by: str = ""
    """Who asked for it, as far as it is known."""
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
    """The harness pool that takes the turns from now on."""
    host: str
    """The pool of the process that hosts the callables from now on."""
    parent_pool: str = ""
    """For a child run: the pool that now waits for its outcome."""
    stream: bool | None = None
    """Whether the caller now wants the model's stream events; None: unchanged."""


class ModelAnswered(Message, frozen=True, kw_only=True, tag="model.answered"):
    """The model's answer of a turn."""

    turn: int
    """The number of the turn; the first is 1."""
    agent: str
    """The key of the agent that took it."""
    output: list[Raw]
    """The items that the model produced."""
    usage: TokenUsage
    """The tokens of the turn's requests."""
    response_id: str | None = None
    """The provider's id, by which a later call can continue."""
    request_id: str | None = None
    """The provider's id of the request, for its support."""
    model: str | None = None
    """The model that answered, as the provider names it."""
    raw_usage: Raw = NO_JSON
    """The usage as the provider reported it, if the settings ask for it."""
    disabled_tools: list[str] = []
    """Tools that were not offered, where the tool host asked the model."""
    listed_tools: list[ToolSpec] = []
    """Tools that were listed for this turn, where the tool host asked the model."""
    upto: int = 0
    """The last event that the model's request could include; 0: all before this one."""
    duration_ms: int = 0
    """How long the turn's requests took, in milliseconds."""
    retries: list[ModelRetry] = []
    """Failed requests earlier in this turn."""


class ModelDeferred(Message, frozen=True, kw_only=True, tag="model.deferred"):
    """The model cannot answer now (rate limit). No process waits; a timer requests the next try."""

    turn: int
    """The number of the turn."""
    attempt: int
    """The number of the failed try; the first is 1."""
    delay_s: float
    """Seconds until the next try."""
    waited_s: float
    """Seconds that the turn waits in all, this delay included."""
    error: ErrorInfo
    """Why the model could not answer."""
    duration_ms: int = 0
    """How long the failed request took, in milliseconds."""


class CancelRequested(Message, frozen=True, kw_only=True, tag="cancel.requested"):
    """A request to stop a run, from a person or because a limit was reached."""

    mode: Literal["immediate", "after_turn"] = "immediate"
    """Stop at once, or when the current turn is over."""
    reason: str = ""
    """Why, for people."""
    code: Literal["cancelled", "budget"] = "cancelled"
    """Whether it was cancelled, or used up its budget."""
    budget: Literal["seconds", "depth"] = "seconds"
    """Which limit was reached, if ``code`` is ``budget``."""


DoneStatus = Literal["completed", "failed", "cancelled", "max_turns", "guardrail", "budget"]


class RunDone(Message, frozen=True, kw_only=True, tag="run.done"):
    """A run is over."""

    status: DoneStatus
    """How it ended."""
    agent: str
    """The key of the last agent."""
    turns: int
    """How many turns it took."""
    usage: TokenUsage
    """The tokens of the run and its child runs."""
    output: Raw = NO_JSON
    """The final output: a text as JSON, or the value of the output type."""
    output_from: Literal["model", "tool", "handler"] = "model"
    """Who made the output: the model, a tool, or an error handler."""
    error: ErrorInfo | None = None
    """Why it failed; None: it did not."""
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
    """One model stream event on the live subject."""

    turn: int
    """The number of the turn."""
    n: int
    """The number of the event within its attempt."""
    event: Raw
    """The event as the model's endpoint sent it."""
    attempt: int = 1
    """The number of the try; events of an earlier try no longer count."""


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
