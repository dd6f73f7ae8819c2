"""A run's log as the conversation on its page: who said what, which tools were called and what came
back, who took over, who was asked. Only data: :mod:`conversation_html` writes it down.
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
from sandstream._inspect.rows import Call, EventRow, Item
from sandstream._inspect.texts import error_text, output_text

Tone = Literal["", "good", "bad", "wait"]


class Speech(msgspec.Struct, kw_only=True):
    role: str
    """``user``, ``assistant``, ``system``, ``developer``; ours: ``thinks``, ``output``."""
    who: str = ""
    text: str
    time: str = ""
    model: str = ""
    tokens: int = 0


class Remark(msgspec.Struct, kw_only=True):
    """What happened between the words: a handoff, a person's decision, a guardrail."""

    text: str
    tone: Tone = ""
    time: str = ""


class Earlier(msgspec.Struct, kw_only=True):
    """What the conversation held before this run."""

    entries: list[Entry]


Entry = Speech | Call | Remark | Earlier


def conversation(events: Iterable[LogEvent]) -> list[Entry]:
    """The conversation of one run, from its own log."""
    told = _Conversation()
    for row in RunReader().read(events):
        told.add(row)
    return told.entries


class _Conversation:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._shown: set[int] = set()
        """The calls among the entries, by identity."""
        self._last_said = ""

    def add(self, row: EventRow) -> None:
        event = row.event
        match event:
            case RunStarted():
                self._say(row)
            case RunRestored() as restored:
                past = numbered(len(restored.events), "event")
                self._remark(f"Continues from a saved state of {past}", row)
            case ConversationOpened() if row.items:
                earlier = _Conversation()
                earlier._say(msgspec.structs.replace(row, agent="", time=""))
                place = next((n for n, it in enumerate(self.entries) if isinstance(it, Speech)), 0)
                self.entries.insert(place, Earlier(entries=earlier.entries))
            case InputStaged() as staged:
                self._say(row, who=staged.by if isinstance(staged.input, str) else "")
            case ModelAnswered() as answer:
                self._say(row, model=answer.model or "", tokens=answer.usage.output_tokens)
            case ModelDeferred() as deferred:
                text = f"The model asked to wait {deferred.delay_s:g} s: {deferred.error.message}"
                self._remark(text, row, "wait")
            case CallRequested() | ApprovalRequested() if row.call is not None:
                self._show(row.call)
            case ApprovalDecided() as decided if not decided.run:
                if row.call is None or id(row.call) not in self._shown:
                    self.entries.append(_remark_of(row))
            case TurnRequested() as turn if turn.reason == "handoff":
                self._remark(f"{row.agent_before} hands over to {turn.agent}", row)
            case RunMoved() as moved:
                self._remark(f"Another process continues (pool {moved.pool})", row)
            case RunReopened() as reopened:
                self._remark(f"Reopened: {reopened.reason}", row)
            case CancelRequested() as cancel:
                self._remark(f"Cancel requested {cancel.reason}".strip(), row, "wait")
            case RunDone() as done:
                self._done(done, row)
            case ConversationOpened() | CallRequested() | ApprovalRequested() | ApprovalDecided():
                pass
            case TurnRequested() | CallStarted() | CallFinished() | RunWaiting() | ChildWaiting():
                pass  # how it was done, not what was said
            case _:
                assert_never(event)
        for text in row.objections:
            self._remark(text[0].upper() + text[1:], row, "bad")

    def _say(self, row: EventRow, *, who: str = "", model: str = "", tokens: int = 0) -> None:
        for item in row.items:
            if item.call is not None:
                self._show(item.call)
            elif item.kind == "other":
                self.entries.append(_unknown(item, row.time))
            elif item.kind == "message":
                said = Speech(role=item.role, who=who, text=item.text, time=row.time)
                if item.role == "assistant":
                    said.who, said.model, said.tokens = row.agent, model, tokens
                self.entries.append(said)
                self._last_said = item.text
            elif item.text:
                thought = Speech(role="thinks", who=row.agent, text=item.text, time=row.time)
                self.entries.append(thought)

    def _show(self, call: Call) -> None:
        if id(call) not in self._shown:
            self._shown.add(id(call))
            self.entries.append(call)

    def _done(self, event: RunDone, row: EventRow) -> None:
        if event.error is not None:
            self._remark(f"Ended, {event.status}: {error_text(event.error)}", row, "bad")
        elif event.output:
            text = output_text(event.output)
            if text and text != self._last_said:
                said = Speech(role="output", who=event.agent, text=text, time=row.time)
                self.entries.append(said)

    def _remark(self, text: str, row: EventRow, tone: Tone = "") -> None:
        self.entries.append(Remark(text=text, tone=tone, time=row.time))


def remarks_of(call: Call) -> list[Remark]:
    """What people were asked about a call, and what they decided."""
    return [_remark_of(row) for row in call.questions]


def _remark_of(row: EventRow) -> Remark:
    event = row.event
    if not isinstance(event, ApprovalDecided):
        return Remark(text="Waits for a person's approval", tone="wait", time=row.time)
    if event.expired:
        return Remark(text="The approval expired without an answer", tone="bad", time=row.time)
    who = f" by {event.by}" if event.by else ""
    always = ", also from now on" if event.always else ""
    why = f": {event.message}" if event.message else ""
    rest = f"{who}{always}{why}"
    if event.approve:
        return Remark(text=f"Approved{rest}", tone="good", time=row.time)
    return Remark(text=f"Rejected{rest}", tone="bad", time=row.time)


def _unknown(item: Item, time: str) -> Call:
    """A tool of the model's provider, or an item that is not known here."""
    rest = {key: it for key, it in item.value.items() if key not in ("type", "id")}
    arguments = msgspec.json.encode(rest).decode()
    return Call(name=item.type.removesuffix("_call"), arguments=arguments, time=time, state="done")
