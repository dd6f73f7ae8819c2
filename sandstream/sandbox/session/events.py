"""What is told about a sandbox session: one event when an operation starts, one when it ends."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from sandstream.sandbox.errors import ErrorCode, OpName

EventPhase = Literal["start", "finish"]


class EventPayloadPolicy(BaseModel):
    """How much of what may be secret or large goes into events.

    In an override only the fields that were set count; the others come from the wider policy.
    """

    include_exec_output: bool = False
    max_stdout_chars: int = Field(default=8_000, ge=0)
    max_stderr_chars: int = Field(default=8_000, ge=0)
    include_write_len: bool = True
    """The number of bytes that were written. The bytes themselves are never part of an event."""


class SandboxSessionEventBase(BaseModel):
    """What both kinds of event have."""

    version: int = 1
    event_id: uuid.UUID = Field(default_factory=uuid.uuid4)
    ts: datetime = Field(default_factory=lambda: datetime.now(UTC))
    session_id: uuid.UUID
    seq: int
    op: OpName
    phase: EventPhase
    span_id: str
    """The same in the start and the finish of an operation."""
    parent_span_id: str | None = None
    trace_id: str | None = None
    data: dict[str, object] = Field(default_factory=dict)
    """Facts of the operation: its command, path, port."""


class SandboxSessionStartEvent(SandboxSessionEventBase):
    """An operation starts."""

    phase: Literal["start"] = "start"  # pyright: ignore[reportIncompatibleVariableOverride]


class SandboxSessionFinishEvent(SandboxSessionEventBase):
    """An operation ended, well or not."""

    phase: Literal["finish"] = "finish"  # pyright: ignore[reportIncompatibleVariableOverride]
    ok: bool
    duration_ms: float
    # Codes of other versions stay readable, as plain text.
    error_code: ErrorCode | str | None = Field(default=None, union_mode="left_to_right")
    error_type: str | None = None
    error_message: str | None = None
    error_retryable: bool | None = None
    stdout: str | None = None
    stderr: str | None = None
    # The output as it came: each sink's policy says whether and how much of it becomes text.
    stdout_bytes: bytes | None = Field(default=None, exclude=True)
    stderr_bytes: bytes | None = Field(default=None, exclude=True)


SandboxSessionEvent = Annotated[
    SandboxSessionStartEvent | SandboxSessionFinishEvent, Field(discriminator="phase")
]
_EVENT: TypeAdapter[SandboxSessionEvent] = TypeAdapter(SandboxSessionEvent)


def validate_sandbox_session_event(obj: object) -> SandboxSessionEvent:
    """The event that a dict describes; raises pydantic's ``ValidationError`` if it is none."""
    return _EVENT.validate_python(obj)


def event_to_json_line(event: SandboxSessionEvent) -> str:
    """The event as one line of a JSONL file: compact, ASCII, keys in order."""
    return json.dumps(event.model_dump(mode="json"), separators=(",", ":"), sort_keys=True) + "\n"
