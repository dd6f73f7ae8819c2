"""The life of one call in a run's log: requested, started, finished. ``calls.py`` has the kinds."""

from __future__ import annotations

from msgspec import Raw

from sandstream_bus.wire.calls import CALLS, CallKind, CallTraits
from sandstream_bus.wire.host_results import GuardrailRecord
from sandstream_bus.wire.message_base import ErrorInfo, Message
from sandstream_bus.wire.model_records import TokenUsage
from sandstream_bus.wire.specs import NO_JSON


class CallRequested(Message, frozen=True, kw_only=True, tag="call.requested"):
    """A request to another actor: to the tool host for the user's code, to the sandbox actor for
    work in a sandbox. The subject selects the receiver; ``kind`` says what to do (see calls.py).
    For all kinds except ``tool`` the receiver reads the rest from the run's log.
    """

    call: str
    """The id of the call in the log: ``t1-0`` is the first of turn 1."""
    kind: CallKind
    """What to do."""
    turn: int
    """The turn that the call belongs to."""
    agent: str
    """The key of the agent whose turn it is."""
    name: str = ""
    """The name of the tool, for tools and child runs."""
    call_id: str = ""
    """The id that the model gave the call."""
    arguments: str = ""
    """The model's arguments: JSON text, or plain text for a freeform tool."""
    at_most_once: bool = False
    """Whether a call that may have started is not made again."""
    reply_pool: str
    """The harness pool that waits for the result."""
    usage: TokenUsage = TokenUsage()
    """The run's usage so far, for the tool's context."""
    error: ErrorInfo | None = None
    """The failure that an error handler is asked about."""
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
    """A tool host began to work on a call. It is stored before the first effect."""

    call: str
    """The id of the call."""
    host: str
    """The process that works on it."""


class CallFinished(Message, frozen=True, kw_only=True, tag="call.finished"):
    """The only outcome of a call. The model reads an ``error`` that has an ``output``; an ``error``
    without one ends the run.
    """

    call: str
    """The id of the call."""
    kind: CallKind
    """What was done."""
    turn: int
    """The turn that the call belongs to."""
    output: Raw = NO_JSON
    """For a tool: the text or content parts that the model sees. Else: the call's own result
    struct.
    """
    value: Raw = NO_JSON
    """The tool's return value as JSON, if it may become the final output. For guardrails that
    refused a tool's output: the text that replaces it.
    """
    custom_data: Raw = NO_JSON
    """Data for the application that the model never sees."""
    error: ErrorInfo | None = None
    """What failed; None: nothing."""
    duration_ms: int = 0
    """How long the call took, in milliseconds."""
    full_output: str = ""
    """The digest of the object that holds the whole output, where ``output`` is shortened."""
    full_output_bytes: int = 0
    """The size of the whole output."""
    usage: TokenUsage = TokenUsage()
    """Of a child run: the usage of it and its own children."""
    turns: int = 0
    """Of a child run: the turns of it and its own children."""
    tool_calls: int = 0
    """Of a child run: the tool calls of it and its own children."""
    child: str = ""
    """The child run that the call refers to."""
    attempt: int = 0
    """Of a child run: the attempt of the call that it ends."""
    guardrails: list[GuardrailRecord] = []
    """The verdicts of the guardrails that took part."""

    @property
    def traits(self) -> CallTraits:
        return CALLS[self.kind]
