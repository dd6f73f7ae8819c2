"""What was said in a run, as people read it: who said what, which calls came to what, what people
decided, how it ended. Made from the run's events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from sandstream_actors.run_places import past_events
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CancelRequested,
    ConversationOpened,
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    RunReopened,
    RunRestored,
    RunStarted,
    TurnRequested,
)

from sandstream.cli.approval_texts import decided_text, wanted_text
from sandstream.cli.event_texts import (
    call_text,
    error_text,
    guardrail_text,
    item_text,
    numbered,
    output_text,
    usage_text,
    value_text,
)
from sandstream.cli.render import clock, duration, seconds_between, size
from sandstream.cli.sandbox_lines import command_text

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
    """All that was said in a run, in order."""
    talk = _Talk(run)
    for time, event in _flat(events):
        talk.take(event, time)
    return talk.said


def _flat(events: Iterable[LogEvent]) -> Iterator[tuple[str, RunEvent]]:
    """Events with those of a run that goes on from a saved state."""
    for logged in events:
        if isinstance(logged.event, RunRestored):
            yield from (("", past) for _, past in past_events(logged.event))
        else:
            yield logged.stored.time, logged.event


class _Talk:
    def __init__(self, run: str) -> None:
        self.said: list[Said] = []
        self._run = run
        self._agent = ""
        self._calls: dict[str, tuple[CallRequested, str]] = {}
        self._asked: dict[str, tuple[ApprovalRequested, Said, str]] = {}
        self._decided: set[str] = set()

    def take(self, event: RunEvent, time: str) -> None:
        match event:
            case RunStarted():
                self._agent = event.graph.start
                self._input(event.input)
            case ConversationOpened() if event.history:
                items = numbered(len(event.history), "item")
                self._note("before", f"{items} of the conversation that it continues")
            case InputStaged():
                self._input([event.input] if isinstance(event.input, str) else event.input)
            case ModelAnswered():
                self._answer(event)
            case ModelDeferred():
                wait = f"asks again in {duration(event.delay_s)}"
                self._note("model", f"{error_text(event.error)}: {wait}", is_bad=True)
            case CallRequested():
                self._calls[event.call] = (event, time)
            case CallFinished():
                self._result(event, time)
            case ApprovalRequested() if not event.run:
                self._question(event, time)
            case ApprovalDecided() if event.run in ("", self._run):
                self._decision(event, time)
            case TurnRequested() if event.reason == "handoff":
                text = f"{self._agent} hands over to {event.agent}"
                self.said.append(Said(who="handoff", kind="handoff", text=text))
                self._agent = event.agent
            case CancelRequested():
                self._note("cancel", event.reason or "the run is to stop")
            case RunReopened():
                self._note("reopened", event.reason)
            case RunDone():
                self._end(event)
            case _:
                pass

    def _note(self, who: str, text: str, *, is_bad: bool = False) -> None:
        self.said.append(Said(who=who, kind="note", text=text, is_bad=is_bad))

    # --- what people and models say ------------------------------------------------------------

    def _input(self, items: Iterable[Any]) -> None:
        for item in items:
            value = msgspec.json.decode(item) if isinstance(item, msgspec.Raw) else item
            if isinstance(value, str):
                self.said.append(Said(who="user", kind="user", text=value))
            elif isinstance(value, dict):
                self.said.extend(said_of(value, "assistant"))

    def _answer(self, answered: ModelAnswered) -> None:
        self._agent = answered.agent
        said = [
            one
            for item in answered.output
            for one in said_of(msgspec.json.decode(item), answered.agent)
        ]
        if not said:
            said = [Said(who=answered.agent, kind="agent", text="(nothing)")]
        about = [answered.model or "", usage_text(answered.usage)]
        if answered.usage.reasoning_tokens:
            about.append(f"{answered.usage.reasoning_tokens} of them to think")
        if answered.duration_ms:
            about.append(duration(answered.duration_ms / 1000))
        said[-1].about = " · ".join(part for part in about if part)
        self.said.extend(said)

    def _end(self, done: RunDone) -> None:
        if done.error is not None:
            text = error_text(done.error)
            self.said.append(Said(who=done.status.replace("_", " "), kind="error", text=text))
        elif done.output_from != "model" and done.output:
            whose = "a tool's" if done.output_from == "tool" else "an error handler's"
            text = output_text(done.output)
            self.said.append(Said(who="output", kind="agent", text=text, about=f"{whose} output"))

    # --- calls ---------------------------------------------------------------------------------

    def _result(self, finished: CallFinished, time: str) -> None:
        for record in finished.guardrails:
            if text := guardrail_text(record):
                self._note("guardrail", text, is_bad=True)
        call, asked_at = self._calls.get(finished.call, (None, ""))
        if finished.kind not in ("tool", "child", "reject"):
            return
        text = output_text(finished.output) if finished.output else ""
        if finished.error is not None and not text:
            text = error_text(finished.error)
        self.said.append(
            Said(
                who=(call.name if call else "") or finished.call,
                kind="result",
                text=command_text(text),
                about=self._about_result(finished, asked_at, time),
                is_bad=finished.error is not None or finished.kind == "reject",
            )
        )

    def _about_result(self, finished: CallFinished, asked_at: str, time: str) -> str:
        about: list[str] = []
        if finished.kind == "child":
            tokens = f"{finished.usage.total_tokens} tokens"
            about += [f"run {finished.child}", numbered(finished.turns, "turn"), tokens]
            if (seconds := seconds_between(asked_at, time)) is not None:
                about.append(duration(seconds))
        elif finished.duration_ms:
            about.append(duration(finished.duration_ms / 1000))
        if finished.full_output:
            whole = size(finished.full_output_bytes)
            command = f"sandstream artifacts output {self._run} {finished.call}"
            about.append(f"shortened; all {whole}: {command}")
        return " · ".join(about)

    # --- people --------------------------------------------------------------------------------

    def _question(self, asked: ApprovalRequested, time: str) -> None:
        if asked.call in self._asked:
            return
        since = f"waits since {clock(time)}" if time else "waits"
        said = Said(who="approval", kind="approval", text=wanted_text(asked), about=since)
        self._asked[asked.call] = self._asked[asked.call_id] = (asked, said, time)
        self.said.append(said)

    def _decision(self, decided: ApprovalDecided, time: str) -> None:
        """The first answer for a call counts."""
        if decided.call not in self._asked:
            return
        asked, said, since = self._asked[decided.call]
        if asked.call in self._decided:
            return
        self._decided.add(asked.call)
        said.is_bad = not decided.approve
        what = "approved" if decided.approve else "rejected"
        text = decided_text("" if decided.expired else what, decided).lstrip(": ")
        waited = seconds_between(since, time) if since and time else None
        said.about = text if waited is None else f"{text} · after {duration(waited)}"


def said_of(item: Any, agent: str) -> list[Said]:
    """An item of the Responses API; nothing for a thought without words."""
    if not isinstance(item, dict):
        return []
    match item.get("type", "message"):
        case "message":
            role = str(item.get("role", "assistant"))
            is_agent = role == "assistant"
            who = agent if is_agent else role
            return [Said(who=who, kind="agent" if is_agent else "user", text=item_text(item))]
        case "custom_tool_call":
            text = f"{item.get('name')}:\n{item.get('input', '')}"
            return [Said(who=agent, kind="call", text=text)]
        case "function_call":
            text = call_text(str(item.get("name")), str(item.get("arguments", "")))
            return [Said(who=agent, kind="call", text=text)]
        case "function_call_output" | "custom_tool_call_output":
            text = value_text(item.get("output"))
            return [Said(who=str(item.get("call_id")), kind="result", text=text)]
        case "reasoning":
            text = item_text(item)
            return [Said(who=agent, kind="thought", text=text)] if text else []
        case other:
            text = f"{str(other).removesuffix('_call')}: {value_text(item)}"
            return [Said(who=agent, kind="call", text=text)]
