"""What people see of one run, as data: its events, what was said, its calls, its questions.

Names and texts in the rows are foreign. A view has to clean or escape them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.attempts import Attempt, attempt_of
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallRequested,
    ErrorInfo,
    GuardrailRecord,
    RunEvent,
)

from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.texts import item_text

CallState = Literal["asked", "running", "done", "failed", "rejected", "handoff"]


class Item(msgspec.Struct, kw_only=True):
    """One item of the Responses API: what a person, a model or a tool said."""

    kind: Literal["message", "thought", "call", "tool_output", "other"]
    type: str
    """As the API names it."""
    value: Any
    """The item itself."""
    role: str = ""
    text: str = ""
    """Of a message or a thought."""
    name: str = ""
    arguments: str = ""
    call_id: str = ""
    is_custom: bool = False
    call: Call | None = None
    """The call that the item asks for or answers."""


class Call(msgspec.Struct, kw_only=True):
    """A call of a tool or of another agent. Later events of the run change it in place."""

    name: str
    arguments: str = ""
    time: str = ""
    """When the model or the log first named it."""
    state: CallState = "asked"
    output: str = ""
    error: ErrorInfo | None = None
    duration_ms: int = 0
    child: str = ""
    """The run that it started."""
    questions: list[EventRow] = []
    """What people were asked about it, and what they answered, in order."""


class Step(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Base of what can stand below a run in its tree."""

    time: str


class ChildCall(Step, kw_only=True, tag="child"):
    """An agent was called as a tool."""

    call: str
    tool: str
    arguments: str = ""
    run: RunTree | None = None
    """None: it has not started."""


class Handoff(Step, kw_only=True, tag="handoff"):
    source: str
    target: str


class Approval(Step, kw_only=True, tag="approval"):
    """A person was asked; ``time`` is when. The first decision counts."""

    asked: ApprovalRequested
    decision: Literal["waiting", "approved", "rejected"] = "waiting"
    decided: ApprovalDecided | None = None
    decided_at: str = ""


class Objection(Step, kw_only=True, tag="guardrail"):
    """A guardrail objected."""

    guardrail: GuardrailRecord


TreeStep = ChildCall | Handoff | Approval | Objection


class RunTree(msgspec.Struct, kw_only=True):
    """A run, and what makes it more than one agent's loop, in order."""

    summary: RunSummary
    steps: list[TreeStep]


class EventRow(msgspec.Struct, kw_only=True):
    """One event of a run, with what the events before it tell about it."""

    run: str
    sequence: int
    time: str
    """Empty for an event of a saved state."""
    event: RunEvent
    agent: str
    """The agent that has the run after the event."""
    agent_before: str
    attempt: Attempt
    """Which process wrote the event, and in which try."""
    is_takeover: bool = False
    """The event is the first sign of a process that took over from a lost one."""
    lost_worker: str = ""
    """The process that had the work before, where the log names it."""
    name: str = ""
    """The tool or operation that the event is about; its call id, if the log has no name."""
    name_below: str = ""
    """The tool of a run below that the event is about."""
    request: CallRequested | None = None
    """The request that a result answers."""
    requested_at: str = ""
    call: Call | None = None
    """The call that the event is about, if the model made it."""
    approval: Approval | None = None
    """The question that the event asks for the first time, or that it is the first to decide."""
    is_late: bool = False
    """The event decides what was decided before."""
    items: list[Item] = []
    """What was said."""
    objections: list[str] = []
    """What guardrails objected to."""
    past: list[EventRow] = []
    """The events of the saved state from which the run continues."""


class EventRecord(msgspec.Struct, kw_only=True):
    """One event as ``--json`` prints it."""

    run_id: str
    sequence: int
    time: str
    subject: str
    worker: str = ""
    """The process that wrote it, ``host:pid:instance``; empty where the log does not say."""
    attempts: int = 1
    """Which try at its message it came of."""
    takeovers: int = 0
    """How many of the tries before were lost with other processes."""
    event: RunEvent


def record_of(run: str, event: LogEvent) -> EventRecord:
    attempt = attempt_of(event.stored.headers)
    return EventRecord(
        run_id=run,
        sequence=event.sequence,
        time=event.stored.time,
        subject=event.subject,
        worker=attempt.worker,
        attempts=attempt.number,
        takeovers=attempt.takeovers,
        event=event.event,
    )


def item_of(value: Any) -> Item:
    """An item as it is stored, which may be anything."""
    if not isinstance(value, dict):
        text = value if isinstance(value, str) else str(value)
        return Item(kind="message", type="", value=value, role="user", text=text)
    kind = str(value.get("type", "message"))
    item = Item(kind="other", type=kind, value=value, call_id=str(value.get("call_id")))
    match kind:
        case "message":
            item.kind = "message"
            item.role = str(value.get("role", "assistant"))
            item.text = item_text(value)
        case "reasoning":
            item.kind = "thought"
            item.text = item_text(value)
        case "function_call" | "custom_tool_call":
            item.kind = "call"
            item.name = str(value.get("name"))
            item.is_custom = kind == "custom_tool_call"
            item.arguments = str(value.get("input" if item.is_custom else "arguments") or "")
        case "function_call_output" | "custom_tool_call_output":
            item.kind = "tool_output"
    return item
