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

from sandstream_bus.specs import NO_JSON, AgentSpec, GraphSpec, RunOptions


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all tagged messages."""


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What model calls have cost, summed."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def plus(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure as data: what, on what, and what the caller should raise."""

    code: str
    message: str
    data: dict[str, Any] = {}


# --- tasks and agents -----------------------------------------------------------------------------


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What anybody may publish to ``<p>.task.<agent>``. Only ``input`` is needed; no tag."""

    input: str | list[Raw]
    context: Raw = NO_JSON
    max_turns: int | msgspec.UnsetType | None = msgspec.UNSET
    stream: bool = False
    previous_response_id: str | None = None
    conversation_id: str | None = None
    group_id: str | None = None
    metadata: dict[str, Any] = {}


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


class TurnRequested(Message, frozen=True, kw_only=True, tag="turn.requested"):
    """Take the turn ``turn``: after a wait, or because the run goes on with another agent."""

    turn: int
    agent: str
    reason: Literal["waited", "handoff"] = "waited"


class RunReopened(Message, frozen=True, kw_only=True, tag="run.reopened"):
    """A run that ended because a message was parked goes on."""

    reason: str


class RunMoved(Message, frozen=True, kw_only=True, tag="run.moved"):
    """The run's process is gone; another one takes its turns and hosts its callables from here.

    What was asked of the old one and has no result is asked again.
    """

    pool: str
    host: str


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
    duration_ms: int = 0


class ModelDeferred(Message, frozen=True, kw_only=True, tag="model.deferred"):
    """The model cannot answer now (rate limit): nobody waits in memory, a timer asks again."""

    turn: int
    attempt: int
    delay_s: float
    waited_s: float
    error: ErrorInfo


CallKind = Literal[
    "tool", "prepare", "model", "stop", "output", "error", "open", "checkpoint", "close"
]


class CallRequested(Message, frozen=True, kw_only=True, tag="call.requested"):
    """Ask for one thing: of the tool host what only the user's code can do, of the sandbox actor
    what happens in a sandbox. The subject says whom.

    ``tool``: call a function tool; ``prepare``: compute instructions, enabled tools and filtered
    input of a turn; ``model``: ask a model object of the user; ``stop``: a callable
    ``tool_use_behavior``; ``output``: validate the final answer; ``error``: an error handler. All
    but ``tool`` read the run's log for the rest.
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
    """The tool's return value as JSON, where it may become the final output."""
    custom_data: Raw = NO_JSON
    error: ErrorInfo | None = None
    duration_ms: int = 0
    full_output: str = ""
    """The digest of the object that holds the whole output, where ``output`` is shortened."""
    full_output_bytes: int = 0


class CancelRequested(Message, frozen=True, kw_only=True, tag="cancel.requested"):
    mode: Literal["immediate", "after_turn"] = "immediate"
    reason: str = ""


DoneStatus = Literal["completed", "failed", "cancelled", "max_turns", "guardrail", "budget"]


class RunDone(Message, frozen=True, kw_only=True, tag="run.done"):
    status: DoneStatus
    agent: str
    turns: int
    usage: TokenUsage
    output: Raw = NO_JSON
    output_from: Literal["model", "tool", "handler"] = "model"
    error: ErrorInfo | None = None


RunEvent = (
    RunStarted
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


# --- results of host calls ------------------------------------------------------------------------


class Prepared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``prepare`` call."""

    instructions: str | None = None
    prompt: Raw = NO_JSON
    disabled_tools: list[str] = []
    input: list[Raw] | None = None
    """Set only where a filter rewrote the input."""


class StopDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``stop`` call, and of an error handler."""

    final: bool
    value: Raw = NO_JSON
    include_in_history: bool = True


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
    "CallFinished",
    "CallKind",
    "CallRequested",
    "CallStarted",
    "CancelRequested",
    "Claim",
    "DoneStatus",
    "ErrorInfo",
    "GraphSpec",
    "LiveEvent",
    "Message",
    "ModelAnswered",
    "ModelDeferred",
    "Parked",
    "Prepared",
    "RunDone",
    "RunEvent",
    "RunOptions",
    "RunMoved",
    "RunReopened",
    "RunStarted",
    "StopDecision",
    "Task",
    "TokenUsage",
    "TurnRequested",
]
