"""The events of a log as lines of a list: which kind, what about."""

from __future__ import annotations

from collections import Counter
from typing import assert_never

import msgspec
from sandstream_bus.messages import (
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
    RunEvent,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TurnRequested,
)

from sandstream.cli.event_texts import (
    call_text,
    error_text,
    item_text,
    numbered,
    output_text,
    usage_text,
)


class Abouts:
    """Says of each event of one run what it is about. Feed it in order: results have no names."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def about(self, event: RunEvent) -> str:
        match event:
            case RunStarted():
                said = [item_text(msgspec.json.decode(it)) for it in event.input[-1:]]
                return ": ".join([event.graph.start, *said])
            case RunRestored():
                return f"from a saved state, {numbered(len(event.events), 'event')}"
            case ConversationOpened():
                return f"{numbered(len(event.history), 'item')} of history"
            case InputStaged():
                return event.input if isinstance(event.input, str) else "more input"
            case ApprovalRequested():
                self._names[event.call] = self._names[event.call_id] = event.name
                return call_text(event.name, event.arguments)
            case ApprovalDecided():
                decision = "approved" if event.approve else "rejected"
                return f"{self._name(event.call)}: {decision}" + _by(event.by)
            case RunWaiting() | ChildWaiting():
                return "for " + ", ".join(it.name for it in event.approvals)
            case TurnRequested():
                return f"turn {event.turn}, {event.agent} ({event.reason})"
            case RunReopened():
                return event.reason
            case RunMoved():
                return f"to pool {event.pool}"
            case ModelAnswered():
                return _answer(event)
            case ModelDeferred():
                return f"attempt {event.attempt}, {event.delay_s:g} s: {event.error.message}"
            case CallRequested():
                self._names[event.call] = event.name or event.kind
                if event.kind in ("tool", "child"):
                    return call_text(event.name, event.arguments)
                return f"{event.kind} {event.name}".strip()
            case CallStarted():
                return f"{self._name(event.call)} on {event.host}"
            case CallFinished():
                if event.error is not None:
                    return f"{self._name(event.call)}: {event.error.message}"
                if event.kind in ("tool", "child"):
                    return f"{self._name(event.call)} → {output_text(event.output)}"
                return self._name(event.call)
            case CancelRequested():
                return event.reason or event.mode
            case RunDone():
                why = error_text(event.error) if event.error else output_text(event.output)
                return f"{event.status}: {why}" if why else event.status
            case _:
                assert_never(event)

    def _name(self, call: str) -> str:
        return self._names.get(call, call)


def _answer(event: ModelAnswered) -> str:
    parts: Counter[str] = Counter()
    for raw in event.output:
        item = msgspec.json.decode(raw)
        match item.get("type", "message"):
            case "message":
                parts[item_text(item)] += 1
            case "function_call" | "custom_tool_call":
                parts[f"{item.get('name')}()"] += 1
            case other:
                parts[str(other)] += 1
    told = [part if count == 1 else f"{part} ×{count}" for part, count in parts.items()]
    return " · ".join([*told, usage_text(event.usage)])


def _by(who: str) -> str:
    return f" by {who}" if who else ""
