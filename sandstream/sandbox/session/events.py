"""Events of a sandbox session: one when an operation starts, one when it ends."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from sandstream.sandbox.errors import ErrorCode, OpName

EventPhase = Literal["start", "finish"]


class EventPayloadPolicy(BaseModel):
    """How much possibly secret or large data goes into events.

    In an override only the fields that were set apply; the others come from the broader policy.

    Example:
        policy = EventPayloadPolicy(include_exec_output=True, max_stdout_chars=500)
        events = Instrumentation(sinks=[sink], payload_policy=policy)
    """

    include_exec_output: bool = False
    """Whether events contain the output of commands."""
    max_stdout_chars: int = Field(default=8_000, ge=0)
    """A longer standard output is shortened to so many characters."""
    max_stderr_chars: int = Field(default=8_000, ge=0)
    """A longer error output is shortened to so many characters."""
    include_write_len: bool = True
    """The number of bytes written. The bytes themselves are never part of an event."""


class SandboxSessionEventBase(BaseModel):
    """The common fields of both kinds of event."""

    version: int = 1
    """The version of this format."""
    event_id: uuid.UUID = Field(default_factory=uuid.uuid4)
    """Identifies the event."""
    ts: datetime = Field(default_factory=lambda: datetime.now(UTC))
    """When the event happened, in UTC."""
    session_id: uuid.UUID
    """The session."""
    seq: int
    """The number of the event in its session; the first is 1."""
    op: OpName
    """The operation."""
    phase: EventPhase
    """Whether the operation starts or ends."""
    span_id: str
    """Identical in the start and the finish of an operation."""
    parent_span_id: str | None = None
    """The span that the operation belongs to; ``None`` if there is none."""
    trace_id: str | None = None
    """The trace that the operation belongs to; ``None`` if there is none."""
    data: dict[str, object] = Field(default_factory=dict)
    """Facts of the operation: its command, path, port."""


class SandboxSessionStartEvent(SandboxSessionEventBase):
    """An operation started."""

    phase: Literal["start"] = "start"  # pyright: ignore[reportIncompatibleVariableOverride]


class SandboxSessionFinishEvent(SandboxSessionEventBase):
    """An operation ended, successfully or not."""

    phase: Literal["finish"] = "finish"  # pyright: ignore[reportIncompatibleVariableOverride]
    ok: bool
    """Whether it succeeded; for a command, whether its exit code is 0."""
    duration_ms: float
    """How long it took, in milliseconds."""
    # Codes of other versions remain readable, as plain text.
    error_code: ErrorCode | str | None = Field(default=None, union_mode="left_to_right")
    """The stable name of the failure; ``None`` without a :class:`SandboxError`."""
    error_type: str | None = None
    """The class of the exception; ``None`` if there was none."""
    error_message: str | None = None
    """The text of the exception; ``None`` if there was none."""
    error_retryable: bool | None = None
    """Whether a retry may succeed; ``None`` if that is not known."""
    stdout: str | None = None
    """The standard output as text, if the policy allows it."""
    stderr: str | None = None
    """The error output as text, if the policy allows it."""
    # The raw output: each sink's policy decides whether and how much of it becomes text.
    stdout_bytes: bytes | None = Field(default=None, exclude=True)
    """The raw standard output, before a policy was applied; never serialized."""
    stderr_bytes: bytes | None = Field(default=None, exclude=True)
    """The raw error output, before a policy was applied; never serialized."""


SandboxSessionEvent = Annotated[
    SandboxSessionStartEvent | SandboxSessionFinishEvent, Field(discriminator="phase")
]
_EVENT: TypeAdapter[SandboxSessionEvent] = TypeAdapter(SandboxSessionEvent)


def validate_sandbox_session_event(obj: object) -> SandboxSessionEvent:
    """The event from a dict; raises pydantic's ``ValidationError`` if it is invalid.

    Args:
        obj: The data of an event, for example a decoded line of a JSONL file.
    """
    return _EVENT.validate_python(obj)


def event_to_json_line(event: SandboxSessionEvent) -> str:
    """The event as one line of a JSONL file: compact, ASCII, sorted keys.

    Args:
        event: The event.
    """
    return json.dumps(event.model_dump(mode="json"), separators=(",", ":"), sort_keys=True) + "\n"
