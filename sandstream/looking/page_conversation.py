"""A run's log as a conversation that people read: who said what, which tools were called and what
came back, who took over, who was asked. Only data: :mod:`page_conversation_html` writes it down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from sandstream_actors.tracing.fold.times import nanoseconds
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CancelRequested,
    ConversationOpened,
    GuardrailRecord,
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    TurnRequested,
)

from sandstream.cli.event_texts import error_text, guardrail_text, item_text, output_text

Tone = Literal["", "good", "bad", "wait"]


class Said(msgspec.Struct, kw_only=True):
    role: str
    """``user``, ``assistant``, ``system``, ``developer``; ours: ``thinks``, ``output``."""
    who: str = ""
    text: str
    at_ns: int = 0
    model: str = ""
    tokens: int = 0


class Called(msgspec.Struct, kw_only=True):
    name: str
    arguments: str = ""
    at_ns: int = 0
    state: Literal["asked", "running", "done", "failed", "rejected", "handoff"] = "asked"
    output: str = ""
    error: str = ""
    duration_ms: int = 0
    child: str = ""
    """The run that it started."""
    remarks: list[Remark] = []


class Remark(msgspec.Struct, kw_only=True):
    """What happened between the words: a handoff, a person's decision, a guardrail."""

    text: str
    tone: Tone = ""
    at_ns: int = 0


class Earlier(msgspec.Struct, kw_only=True):
    """What the conversation held before this run."""

    entries: list[Entry]


Entry = Said | Called | Remark | Earlier


def conversation(events: Iterable[LogEvent]) -> list[Entry]:
    """The conversation of one run, from its own log."""
    told = _Conversation()
    for logged in events:
        told.apply(logged)
    return told.entries


class _Conversation:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._calls: dict[str, Called] = {}
        """By the id in the log, and by the one that the model gave."""
        self._agent = ""
        self._last_said = ""

    def apply(self, logged: LogEvent) -> None:
        at = nanoseconds(logged.stored.time)
        match logged.event:
            case RunStarted() as started:
                self._agent = started.graph.start
                self._add_items([msgspec.json.decode(it) for it in started.input], at)
            case RunRestored() as restored:
                self._remark(f"Goes on from a saved state of {len(restored.events)} events", at)
            case ConversationOpened() as opened if opened.history:
                self._open([msgspec.json.decode(it) for it in opened.history])
            case InputStaged() as staged:
                self._staged(staged, at)
            case ModelAnswered() as answer:
                self._answered(answer, at)
            case ModelDeferred() as deferred:
                text = f"The model asked to wait {deferred.delay_s:g} s: {deferred.error.message}"
                self._remark(text, at, "wait")
            case CallRequested() as call if call.kind in ("tool", "child"):
                self._requested(call, at)
            case CallFinished() as finished:
                self._finished(finished, at)
            case ApprovalRequested() as asked if not asked.run:
                self._asked(asked, at)
            case ApprovalDecided() as decided if not decided.run:
                self._decided(decided, at)
            case TurnRequested() as turn if turn.reason == "handoff":
                self._handed_over(turn, at)
            case RunMoved() as moved:
                self._remark(f"Another process goes on (pool {moved.pool})", at)
            case RunReopened() as reopened:
                self._remark(f"Reopened: {reopened.reason}", at)
            case CancelRequested() as cancel:
                self._remark(f"Cancel requested {cancel.reason}".strip(), at, "wait")
            case RunDone() as done:
                self._done(done, at)
            case _:
                pass  # how it was done, not what was said

    # --- what was said ------------------------------------------------------------------------

    def _open(self, history: list[Any]) -> None:
        earlier = _Conversation()
        earlier._add_items(history, 0)
        place = next((n for n, it in enumerate(self.entries) if isinstance(it, Said)), 0)
        self.entries.insert(place, Earlier(entries=earlier.entries))

    def _staged(self, staged: InputStaged, at: int) -> None:
        if isinstance(staged.input, str):
            self.entries.append(Said(role="user", who=staged.by, text=staged.input, at_ns=at))
        else:
            self._add_items([msgspec.json.decode(it) for it in staged.input], at)

    def _answered(self, answer: ModelAnswered, at: int) -> None:
        before = len(self.entries)
        self._agent = answer.agent
        self._add_items([msgspec.json.decode(it) for it in answer.output], at)
        for entry in self.entries[before:]:
            if isinstance(entry, Said) and entry.role == "assistant":
                entry.model = answer.model or ""
                entry.tokens = answer.usage.output_tokens

    def _add_items(self, items: list[Any], at: int) -> None:
        for item in items:
            if isinstance(item, dict):
                self._add_item(item, at)
            else:
                self.entries.append(Said(role="user", text=str(item), at_ns=at))

    def _add_item(self, item: dict[str, Any], at: int) -> None:
        kind = str(item.get("type", "message"))
        text = item_text(item)
        match kind:
            case "message":
                role = str(item.get("role", "assistant"))
                who = self._agent if role == "assistant" else ""
                self.entries.append(Said(role=role, who=who, text=text, at_ns=at))
                self._last_said = text
            case "reasoning":
                if text:
                    self.entries.append(Said(role="thinks", who=self._agent, text=text, at_ns=at))
            case "function_call" | "custom_tool_call":
                arguments = str(item.get("arguments", item.get("input", "")))
                self._call(str(item.get("call_id")), str(item.get("name")), arguments, at)
            case "function_call_output" | "custom_tool_call_output":
                call = self._call(str(item.get("call_id")), "", "", at)
                call.state = "done"
                call.output = _value_text(item.get("output"))
            case _:
                rest = {key: it for key, it in item.items() if key not in ("type", "id")}
                name = kind.removesuffix("_call")
                arguments = msgspec.json.encode(rest).decode()
                self.entries.append(Called(name=name, arguments=arguments, at_ns=at, state="done"))

    # --- calls ----------------------------------------------------------------------------------

    def _call(self, call_id: str, name: str, arguments: str, at: int) -> Called:
        """The call that this id was given to, or a new one."""
        found = self._calls.get(call_id)
        if found is None:
            found = Called(name=name or call_id, arguments=arguments, at_ns=at, remarks=[])
            self._calls[call_id] = found
            self.entries.append(found)
        return found

    def _requested(self, event: CallRequested, at: int) -> None:
        call = self._call(event.call_id or event.call, event.name, event.arguments, at)
        self._calls[event.call] = call
        call.state = "running"
        call.child = event.child

    def _finished(self, event: CallFinished, at: int) -> None:
        for record in event.guardrails:
            self._objected(record, at)
        call = self._calls.get(event.call)
        if call is None or event.kind not in ("tool", "child"):
            return
        call.state = "failed" if event.error is not None else "done"
        call.error = error_text(event.error) if event.error else ""
        call.output = output_text(event.output) if event.output else ""
        call.duration_ms = event.duration_ms
        call.child = event.child or call.child

    def _objected(self, record: GuardrailRecord, at: int) -> None:
        if text := guardrail_text(record):
            self._remark(text[0].upper() + text[1:], at, "bad")

    def _asked(self, event: ApprovalRequested, at: int) -> None:
        call = self._call(event.call_id or event.call, event.name, event.arguments, at)
        self._calls[event.call] = call
        call.remarks.append(Remark(text="Waits for a person's approval", tone="wait", at_ns=at))

    def _decided(self, event: ApprovalDecided, at: int) -> None:
        who = f" by {event.by}" if event.by else ""
        always = ", also from now on" if event.always else ""
        why = f": {event.message}" if event.message else ""
        if event.expired:
            remark = Remark(text="Nobody answered in time", tone="bad", at_ns=at)
        elif event.approve:
            remark = Remark(text=f"Approved{who}{always}{why}", tone="good", at_ns=at)
        else:
            remark = Remark(text=f"Rejected{who}{always}{why}", tone="bad", at_ns=at)
        call = self._calls.get(event.call)
        if call is None:
            self.entries.append(remark)
            return
        call.remarks.append(remark)
        if not event.approve:
            call.state = "rejected"

    def _handed_over(self, event: TurnRequested, at: int) -> None:
        """The first call of an answer that nobody was asked to do is the one that hands over."""
        for call in _latest_calls(self.entries):
            if call.state == "asked":
                call.state = "handoff"
                break
        self._remark(f"{self._agent} hands over to {event.agent}", at)
        self._agent = event.agent

    def _done(self, event: RunDone, at: int) -> None:
        if event.error is not None:
            self._remark(f"Ended, {event.status}: {error_text(event.error)}", at, "bad")
        elif event.output:
            text = output_text(event.output)
            if text and text != self._last_said:
                self.entries.append(Said(role="output", who=event.agent, text=text, at_ns=at))

    def _remark(self, text: str, at: int, tone: Tone = "") -> None:
        self.entries.append(Remark(text=text, tone=tone, at_ns=at))


def _latest_calls(entries: list[Entry]) -> Iterator[Called]:
    """The calls at the end of what was said, first to last."""
    end: list[Called] = []
    for entry in reversed(entries):
        if isinstance(entry, Said):
            break
        if isinstance(entry, Called):
            end.insert(0, entry)
    yield from end


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
