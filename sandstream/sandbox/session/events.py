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
    """

    include_exec_output: bool = False
    max_stdout_chars: int = Field(default=8_000, ge=0)
    max_stderr_chars: int = Field(default=8_000, ge=0)
    include_write_len: bool = True
    """The number of bytes written. The bytes themselves are never part of an event."""


class SandboxSessionEventBase(BaseModel):
    """The common fields of both kinds of event."""

    version: int = 1
    event_id: uuid.UUID = Field(default_factory=uuid.uuid4)
    ts: datetime = Field(default_factory=lambda: datetime.now(UTC))
    session_id: uuid.UUID
    seq: int
    op: OpName
    phase: EventPhase
    span_id: str
    """Identical in the start and the finish of an operation."""
    parent_span_id: str | None = None
    trace_id: str | None = None
    data: dict[str, object] = Field(default_factory=dict)
    """Facts of the operation: its command, path, port."""


class SandboxSessionStartEvent(SandboxSessionEventBase):
    """An operation started."""

    phase: Literal["start"] = "start"  # pyright: ignore[reportIncompatibleVariableOverride]


class SandboxSessionFinishEvent(SandboxSessionEventBase):
    """An operation ended, successfully or not."""

    phase: Literal["finish"] = "finish"  # pyright: ignore[reportIncompatibleVariableOverride]
    ok: bool
    duration_ms: float
    # Codes of other versions remain readable, as plain text.
    error_code: ErrorCode | str | None = Field(default=None, union_mode="left_to_right")
    error_type: str | None = None
    error_message: str | None = None
    error_retryable: bool | None = None
    stdout: str | None = None
    stderr: str | None = None
    # The raw output: each sink's policy decides whether and how much of it becomes text.
    stdout_bytes: bytes | None = Field(default=None, exclude=True)
    stderr_bytes: bytes | None = Field(default=None, exclude=True)


SandboxSessionEvent = Annotated[
    SandboxSessionStartEvent | SandboxSessionFinishEvent, Field(discriminator="phase")
]
_EVENT: TypeAdapter[SandboxSessionEvent] = TypeAdapter(SandboxSessionEvent)


def validate_sandbox_session_event(obj: object) -> SandboxSessionEvent:
    """The event from a dict; raises pydantic's ``ValidationError`` if it is invalid."""
    return _EVENT.validate_python(obj)


def event_to_json_line(event: SandboxSessionEvent) -> str:
    """The event as one line of a JSONL file: compact, ASCII, sorted keys."""
    return json.dumps(event.model_dump(mode="json"), separators=(",", ":"), sort_keys=True) + "\n"
