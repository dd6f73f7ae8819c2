"""A run's events as lines that people read: for ``watch``, ``run``, ``replay`` and ``show``."""

from __future__ import annotations

from typing import NamedTuple, assert_never

import msgspec
from sandstream_bus.log import LogEvent
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

from sandstream.cli.approval_texts import asked_text as question_text
from sandstream.cli.approval_texts import decided_text, hint_texts, open_text
from sandstream.cli.event_texts import (
    STATUS_STYLES,
    call_text,
    error_text,
    guardrail_text,
    item_text,
    numbered,
    output_text,
    usage_text,
    value_text,
)
from sandstream.cli.masking import masked_line
from sandstream.cli.render import (
    Screen,
    clock,
    count,
    duration,
    pad,
    seconds_between,
    shorten,
)
from sandstream.cli.sandbox_lines import LIFE, asked_text, life_text, result_text, whole_text

LABEL_WIDTH = 7
_INDENT = 8 + 2 + LABEL_WIDTH + 2
_STEP = 2
"""How much further to the right the events of a child run are."""


class EventRecord(msgspec.Struct, kw_only=True):
    """One event as ``--json`` prints it."""

    run_id: str
    sequence: int
    time: str
    subject: str
    event: RunEvent


def record_of(run: str, event: LogEvent) -> EventRecord:
    return EventRecord(
        run_id=run,
        sequence=event.sequence,
        time=event.stored.time,
        subject=event.subject,
        event=event.event,
    )


class Line(NamedTuple):
    label: str
    text: str
    style: str = ""
    """Of the label."""
    is_quiet: bool = False
    """Details that are written dim."""
    is_whole: bool = False
    """For copying: never cut."""


class EventLines:
    """Tells one run. Feed it every event in order: results are named by their calls.

    ``depth`` and ``name``: it is a child run, told among the events of the runs above it.
    ``hinted``: the calls (by run) for which the reader knows how to answer; shared by a tree.
    ``hints``: whether to say how to answer at all.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        depth: int = 0,
        name: str = "",
        hinted: set[tuple[str, str]] | None = None,
        hints: bool = True,
    ) -> None:
        self._screen = screen
        self._margin = " " * (_STEP * depth)
        self._who = name
        self._hinted: set[tuple[str, str]] = set() if hinted is None else hinted
        self._hints = hints
        self._names: dict[str, str] = {}
        self._in_sandbox: set[str] = set()
        """Calls of built-in tools of sandbox agents."""
        self._below: dict[tuple[str, str], str] = {}
        """The tools that runs below ask for, by run and call."""
        self._decided: set[tuple[str, str]] = set()
        self._agent = ""
        self._started_at = ""
        self._said = ""

    def skip(self, event: LogEvent) -> None:
        """Take an event in without showing it."""
        self._lines(event)

    def render(self, event: LogEvent, *, is_output_shown: bool = False) -> list[str]:
        """The lines of one event, cut to the screen. ``is_output_shown``: of the command that
        finished, as it came.
        """
        time = clock(event.stored.time)
        lines: list[str] = []
        for line in self._lines(event, is_output_shown):
            lines.append(self._formatted(time, line))
            time = ""
        return lines

    def _formatted(self, time: str, line: Line) -> str:
        who = f"{self._who} │ " if self._who and not line.is_whole else ""
        room = self._screen.width - _INDENT - len(self._margin) - len(who)
        text = masked_line(line.text)
        if not line.is_whole:
            text = shorten(text, max(20, room))
        return "  ".join(
            [
                self._screen.paint(pad(time, 8), "dim"),
                self._margin + self._screen.paint(pad(line.label, LABEL_WIDTH), line.style),
                self._screen.paint(who, "dim")
                + self._screen.paint(text, "dim" if line.is_quiet else ""),
            ]
        )

    def _lines(self, logged: LogEvent, is_output_shown: bool = False) -> list[Line]:
        event = logged.event
        match event:
            case RunStarted():
                self._started_at = logged.stored.time
                self._agent = event.graph.start
                return self._started(event, _run_of(logged))
            case RunRestored():
                past = numbered(len(event.events), "event")
                return [Line("restore", f"goes on from a saved state of {past}", "yellow")]
            case ConversationOpened():
                text = f"{numbered(len(event.history), 'item')} of its conversation"
                return [Line("history", text, "dim", True)]
            case InputStaged():
                said = event.input if isinstance(event.input, str) else _last_text(event.input)
                return [Line("input", f"{said}{_from(event.by)}", "blue")]
            case ModelAnswered():
                lines = _answered(event)
                self._said = next((line.text for line in lines if line.label == "says"), "")
                return lines
            case ModelDeferred():
                text = f"{event.error.message}; again in {duration(event.delay_s)}"
                return [Line("wait", f"{text} (attempt {event.attempt})", "yellow")]
            case CallRequested():
                return self._requested(event)
            case CallStarted():
                return [Line("begin", f"{self._name(event.call)}, at most once", "dim", True)]
            case CallFinished():
                objections = [text for it in event.guardrails if (text := guardrail_text(it))]
                return [
                    *(Line("guard", text, "bold yellow") for text in objections),
                    *self._finished(event, _run_of(logged), is_output_shown),
                ]
            case TurnRequested():
                return self._turn(event)
            case ApprovalRequested():
                self._names[event.call] = self._names[event.call_id] = event.name
                return [Line("asks", question_text(event), "yellow")]
            case ApprovalDecided():
                return self._answer(event)
            case RunWaiting():
                return self._waiting(event, _run_of(logged))
            case ChildWaiting():
                for it in event.approvals:
                    self._below[it.run, it.call] = self._below[it.run, it.call_id] = it.name
                text = f"{self._name(event.call)}: {open_text(event.approvals)}"
                return [Line("waits", text, "yellow", True)]
            case CancelRequested():
                when = "now" if event.mode == "immediate" else "after this turn"
                return [Line("cancel", f"{when}{_because(event.reason)}", "yellow")]
            case RunMoved():
                return [Line("move", f"another process goes on (pool {event.host})", "yellow")]
            case RunReopened():
                return [Line("reopen", event.reason, "yellow")]
            case RunDone():
                return self._done(event, logged.stored.time)
            case _:
                assert_never(event)

    def _started(self, event: RunStarted, run: str) -> list[Line]:
        agent = event.graph.agents.get(event.graph.start)
        text = f"{event.graph.start} on {agent.model}" if agent else event.graph.start
        if event.parent is not None:
            text += f" · run {run}"
        if (part := event.options.memory) is not None:
            text += f" · memory of {part.scope}"
        lines = [Line("start", text, "bold")]
        for raw in event.input[-1:]:
            lines.append(Line("user", item_text(msgspec.json.decode(raw)), "blue"))
        return lines

    def _requested(self, event: CallRequested) -> list[Line]:
        self._names[event.call] = event.name or event.kind
        if event.kind in LIFE:
            return [Line("sandbox", asked_text(event.kind, event.sandbox), "dim", True)]
        if event.sandbox:
            self._in_sandbox.add(event.call)
        if event.kind == "child":
            return [Line("agent", call_text(event.name, event.arguments), "magenta")]
        if event.kind == "tool":
            return [Line("call", call_text(event.name, event.arguments), "magenta")]
        what = f"{event.kind} {event.name}".strip()
        return [Line("ask", f"{what} for turn {event.turn}", "dim", True)]

    def _finished(self, event: CallFinished, run: str, is_output_shown: bool) -> list[Line]:
        name = self._name(event.call)
        took = f" · {duration(event.duration_ms / 1000)}" if event.duration_ms else ""
        if event.kind in LIFE and event.error is None:
            return [Line("sandbox", f"{life_text(event)}{took}", "cyan")]
        if event.kind not in ("tool", "child"):
            failed = f": {event.error.message}" if event.error else ""
            return [Line("answer", f"{name}{took}{failed}", "red" if failed else "dim", not failed)]
        if event.kind == "child":
            took = f" · {numbered(event.turns, 'turn')}, {count(event.usage.total_tokens)} tokens"
        if event.error is not None:
            told = " (told to the model)" if event.output else ""
            return [Line("error", f"{name}: {event.error.message}{told}{took}", "red")]
        text = output_text(event.output)
        if event.call in self._in_sandbox:
            text = result_text(text, is_output_shown=is_output_shown)
        lines = [Line("result", f"{name} → {text}{took}", "magenta")]
        if whole := whole_text(event, run):
            lines.append(Line("", whole, "", True))
        return lines

    def _turn(self, event: TurnRequested) -> list[Line]:
        match event.reason:
            case "handoff":
                before, self._agent = self._agent, event.agent
                return [Line("handoff", f"{before} → {event.agent}", "bold blue")]
            case "session":
                return [Line("turn", "its conversation is free", "blue")]
            case "waited":
                return [Line("turn", f"{event.turn}: {event.agent} (after the wait)", "blue")]

    # --- people --------------------------------------------------------------------------------

    def _answer(self, event: ApprovalDecided) -> list[Line]:
        label, style = ("approve", "green") if event.approve else ("reject", "red")
        below = self._below.get((event.run, event.call))
        text = decided_text(below or self._name(event.call), event)
        if (event.run, event.call) in self._decided:
            return [Line(label, f"{text} (too late: it was decided)", style, True)]
        self._decided.add((event.run, event.call))
        return [Line(label, text, style, is_quiet=below is not None)]

    def _waiting(self, event: RunWaiting, run: str) -> list[Line]:
        lines = [Line("waits", open_text(event.approvals), "bold yellow")]
        if not self._hints:
            return lines
        new = [it for it in event.approvals if (it.run or run, it.call) not in self._hinted]
        self._hinted.update((it.run or run, it.call) for it in new)
        return [*lines, *(Line("", it, "", True, is_whole=True) for it in hint_texts(new, run))]

    def _done(self, event: RunDone, time: str) -> list[Line]:
        took = seconds_between(self._started_at, time) if self._started_at else None
        facts = [event.status.replace("_", " "), numbered(event.turns, "turn")]
        if event.usage.total_tokens:
            facts.append(f"{count(event.usage.total_tokens)} tokens")
        if took is not None:
            facts.append(duration(took))
        lines = [Line("done", " · ".join(facts), f"bold {STATUS_STYLES[event.status]}")]
        if event.error is not None:
            lines.append(Line("why", error_text(event.error), "red"))
        elif event.output and output_text(event.output) != self._said:
            lines.append(Line("output", output_text(event.output), "green"))
        return lines

    def _name(self, call: str) -> str:
        return self._names.get(call, call)


def _answered(event: ModelAnswered) -> list[Line]:
    facts = [f"turn {event.turn}"]
    if event.duration_ms:
        facts.append(duration(event.duration_ms / 1000))
    facts.append(usage_text(event.usage))
    lines: list[Line] = []
    calls = 0
    for raw in event.output:
        item = msgspec.json.decode(raw)
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            calls += 1  # told by the call itself
        elif kind == "message":
            lines.append(Line("says", item_text(item), "green"))
        elif kind == "reasoning":
            if summary := item_text(item):
                lines.append(Line("thinks", summary, "dim", True))
        else:
            lines.append(Line("uses", kind.removesuffix("_call"), "magenta"))
    if calls:
        facts.append(numbered(calls, "call"))
    return [Line("model", " · ".join(facts), "cyan"), *lines]


def _run_of(event: LogEvent) -> str:
    return event.subject.partition(".run.")[2].partition(".")[0]


def _last_text(items: list[msgspec.Raw]) -> str:
    """The last of the items, and how many there are."""
    if not items:
        return ""
    text = item_text(msgspec.json.decode(items[-1])) or value_text(msgspec.json.decode(items[-1]))
    return text if len(items) == 1 else f"{text} (the last of {len(items)} items)"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _from(who: str) -> str:
    return f" (from {who})" if who else ""
