"""What was said in a run, as blocks of text: who said what, which calls came to what, what people
decided, how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TurnRequested,
)

from sandstream._inspect.reader import RunReader
from sandstream._inspect.rows import Approval, EventRow, Item
from sandstream._inspect.texts import (
    call_text,
    error_text,
    output_text,
    usage_text,
    value_text,
)
from sandstream.cli.commands.approvals.texts import decided_text, wanted_text
from sandstream.cli.commands.sandboxes.lines import command_text, whole_text
from sandstream.cli.terminal.render import clock, duration, seconds_between

SaidKind = Literal[
    "user",
    "agent",
    "thought",
    "call",
    "result",
    "approval",
    "handoff",
    "note",
    "error",
]


class Said(msgspec.Struct, kw_only=True):
    """One thing that was said or that happened between people, agents and tools."""

    who: str
    kind: SaidKind
    text: str
    about: str = ""
    """Small print: the model and its tokens, how long it took, where the rest is."""
    is_bad: bool = False
    """A tool failed, a person refused."""


def talk(run: str, events: Iterable[LogEvent]) -> list[Said]:
    """The messages of a run in order, including those of the saved state that it continues."""
    rows = RunReader(run).read(events)
    return [said for row in rows for one in (row.past or [row]) for said in _said_in(one)]


def _said_in(row: EventRow) -> list[Said]:
    event = row.event
    match event:
        case RunStarted() | InputStaged():
            return [said for item in row.items for said in said_of(item, "assistant")]
        case ConversationOpened() if event.history:
            items = numbered(len(event.history), "item")
            return [_note("before", f"{items} of the conversation that it continues")]
        case ModelAnswered():
            return _answer(event, row.items)
        case ModelDeferred():
            wait = f"asks again in {duration(event.delay_s)}"
            return [_note("model", f"{error_text(event.error)}: {wait}", is_bad=True)]
        case CallFinished():
            objections = [_note("guardrail", text, is_bad=True) for text in row.objections]
            return [*objections, *_result(event, row)]
        case ApprovalRequested() if not event.run and row.approval is not None:
            return [_question(row.approval)]
        case TurnRequested() if event.reason == "handoff":
            text = f"{row.agent_before} hands over to {event.agent}"
            return [Said(who="handoff", kind="handoff", text=text)]
        case CancelRequested():
            return [_note("cancel", event.reason or "a stop of the run was requested")]
        case RunReopened():
            return [_note("reopened", event.reason)]
        case RunDone():
            return _end(event)
        case ConversationOpened() | ApprovalRequested() | ApprovalDecided() | TurnRequested():
            return []
        case RunRestored() | RunMoved() | RunWaiting() | ChildWaiting():
            return []
        case CallRequested() | CallStarted():
            return []
        case _:
            assert_never(event)


def _note(who: str, text: str, *, is_bad: bool = False) -> Said:
    return Said(who=who, kind="note", text=text, is_bad=is_bad)


def _answer(answered: ModelAnswered, items: list[Item]) -> list[Said]:
    said = [one for item in items for one in said_of(item, answered.agent)]
    if not said:
        said = [Said(who=answered.agent, kind="agent", text="(nothing)")]
    about = [answered.model or "", usage_text(answered.usage)]
    if answered.usage.reasoning_tokens:
        about.append(f"{answered.usage.reasoning_tokens} of them to think")
    if answered.duration_ms:
        about.append(duration(answered.duration_ms / 1000))
    said[-1].about = " · ".join(part for part in about if part)
    return said


def _end(done: RunDone) -> list[Said]:
    if done.error is not None:
        text = error_text(done.error)
        return [Said(who=done.status.replace("_", " "), kind="error", text=text)]
    if done.output_from == "model" or not done.output:
        return []
    whose = "a tool's" if done.output_from == "tool" else "an error handler's"
    text = output_text(done.output)
    return [Said(who="output", kind="agent", text=text, about=f"{whose} output")]


def _result(finished: CallFinished, row: EventRow) -> list[Said]:
    traits = finished.traits
    if not traits.is_tool and not traits.is_refusal:
        return []
    text = output_text(finished.output) if finished.output else ""
    if finished.error is not None and not text:
        text = error_text(finished.error)
    return [
        Said(
            who=(row.request.name if row.request else "") or finished.call,
            kind="result",
            text=command_text(text),
            about=_about_result(finished, row),
            is_bad=finished.error is not None or traits.is_refusal,
        )
    ]


def _about_result(finished: CallFinished, row: EventRow) -> str:
    about: list[str] = []
    if finished.traits.is_child_run:
        tokens = numbered(finished.usage.total_tokens, "token")
        about += [f"run {finished.child}", numbered(finished.turns, "turn"), tokens]
        if (seconds := seconds_between(row.requested_at, row.time)) is not None:
            about.append(duration(seconds))
    elif finished.duration_ms:
        about.append(duration(finished.duration_ms / 1000))
    if whole := whole_text(finished, row.run):
        about.append(whole)
    return " · ".join(about)


def _question(approval: Approval) -> Said:
    """A question to a person, with the first answer."""
    said = Said(who="approval", kind="approval", text=wanted_text(approval.asked))
    decided, asked_at = approval.decided, approval.time
    if decided is None:
        said.about = f"waits since {clock(asked_at)}" if asked_at else "waits"
        return said
    said.is_bad = not decided.approve
    text = decided_text("" if decided.expired else approval.decision, decided).lstrip(": ")
    at = approval.decided_at
    waited = seconds_between(asked_at, at) if asked_at and at else None
    said.about = text if waited is None else f"{text} · after {duration(waited)}"
    return said


def said_of(item: Item, agent: str) -> list[Said]:
    """The text of an item; empty for reasoning without a summary."""
    match item.kind:
        case "message":
            is_agent = item.role == "assistant"
            who = agent if is_agent else item.role
            return [Said(who=who, kind="agent" if is_agent else "user", text=item.text)]
        case "call":
            whole = f"{item.name}:\n{item.arguments}"
            text = whole if item.is_custom else call_text(item.name, item.arguments)
            return [Said(who=agent, kind="call", text=text)]
        case "tool_output":
            text = value_text(item.value.get("output"))
            return [Said(who=item.call_id, kind="result", text=text)]
        case "thought":
            return [Said(who=agent, kind="thought", text=item.text)] if item.text else []
        case "other":
            text = f"{item.type.removesuffix('_call')}: {value_text(item.value)}"
            return [Said(who=agent, kind="call", text=text)]
