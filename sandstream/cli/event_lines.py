"""A run's events as lines that people read: for ``watch``, ``run``, ``replay`` and ``show``."""

from __future__ import annotations

from typing import Any, NamedTuple, assert_never

import msgspec
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import (
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ErrorInfo,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    RunStarted,
    TokenUsage,
    TurnRequested,
)

from sandstream.cli.render import (
    Screen,
    clock,
    count,
    duration,
    one_line,
    pad,
    seconds_between,
    shorten,
)
from sandstream.cli.sandbox_lines import LIFE, asked_text, life_text, result_text, whole_text

LABEL_WIDTH = 7
_INDENT = 8 + 2 + LABEL_WIDTH + 2
STATUS_STYLES = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "max_turns": "red",
    "guardrail": "yellow",
    "budget": "yellow",
}


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


class EventLines:
    """Tells one run. Feed it every event in order: results are named by their calls."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._names: dict[str, str] = {}
        self._in_sandbox: set[str] = set()
        """Calls of built-in tools of sandbox agents."""
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
        text = shorten(one_line(line.text), max(20, self._screen.width - _INDENT))
        return "  ".join(
            [
                self._screen.paint(pad(time, 8), "dim"),
                self._screen.paint(pad(line.label, LABEL_WIDTH), line.style),
                self._screen.paint(text, "dim" if line.is_quiet else ""),
            ]
        )

    def _lines(self, logged: LogEvent, is_output_shown: bool = False) -> list[Line]:
        event = logged.event
        match event:
            case RunStarted():
                self._started_at = logged.stored.time
                return self._started(event)
            case ModelAnswered():
                lines = _answered(event)
                self._said = next((line.text for line in lines if line.label == "says"), "")
                return lines
            case ModelDeferred():
                text = f"{event.error.message}; again in {duration(event.delay_s)}"
                return [Line("wait", f"{text} (attempt {event.attempt})", "yellow")]
            case CallRequested():
                self._names[event.call] = event.name or event.kind
                if event.kind in LIFE:
                    return [Line("sandbox", asked_text(event.kind, event.sandbox), "dim", True)]
                if event.sandbox:
                    self._in_sandbox.add(event.call)
                if event.kind == "tool":
                    return [Line("call", call_text(event.name, event.arguments), "magenta")]
                return [Line("ask", f"{event.kind} for turn {event.turn}", "dim", True)]
            case CallStarted():
                return [Line("begin", f"{self._name(event.call)}, at most once", "dim", True)]
            case CallFinished():
                return self._finished(event, logged.subject, is_output_shown)
            case TurnRequested():
                why = "after the wait" if event.reason == "waited" else "handed over"
                return [Line("turn", f"{event.turn}: {event.agent} ({why})", "blue")]
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

    def _started(self, event: RunStarted) -> list[Line]:
        agent = event.graph.agents.get(event.graph.start)
        text = f"{event.graph.start} on {agent.model}" if agent else event.graph.start
        lines = [Line("start", text, "bold")]
        for raw in event.input[-1:]:
            lines.append(Line("user", item_text(msgspec.json.decode(raw)), "blue"))
        return lines

    def _finished(self, event: CallFinished, subject: str, is_output_shown: bool) -> list[Line]:
        name = self._name(event.call)
        took = f" · {duration(event.duration_ms / 1000)}" if event.duration_ms else ""
        if event.kind in LIFE and event.error is None:
            return [Line("sandbox", f"{life_text(event)}{took}", "cyan")]
        if event.kind != "tool":
            failed = f": {event.error.message}" if event.error else ""
            return [Line("answer", f"{name}{took}{failed}", "red" if failed else "dim", not failed)]
        if event.error is not None:
            told = " (told to the model)" if event.output else ""
            return [Line("error", f"{name}: {event.error.message}{told}{took}", "red")]
        text = output_text(event.output)
        if event.call in self._in_sandbox:
            text = result_text(text, is_output_shown=is_output_shown)
        lines = [Line("result", f"{name} → {text}{took}", "magenta")]
        run = subject.partition(".run.")[2].partition(".")[0]
        if whole := whole_text(event, run):
            lines.append(Line("", whole, "", True))
        return lines

    def _done(self, event: RunDone, time: str) -> list[Line]:
        took = seconds_between(self._started_at, time) if self._started_at else None
        facts = [event.status.replace("_", " "), _number(event.turns, "turn")]
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
        facts.append(_number(calls, "call"))
    return [Line("model", " · ".join(facts), "cyan"), *lines]


# --- the parts ------------------------------------------------------------------------------------


def usage_text(usage: TokenUsage) -> str:
    return f"{count(usage.input_tokens)} in, {count(usage.output_tokens)} out"


def error_text(error: ErrorInfo) -> str:
    return f"{error.code}: {error.message}"


def call_text(name: str, arguments: str) -> str:
    """A call as Python would write it."""
    try:
        decoded = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return f"{name}({arguments})"
    if not isinstance(decoded, dict):
        return f"{name}({arguments})"
    pairs = [f"{key}={msgspec.json.encode(value).decode()}" for key, value in decoded.items()]
    return f"{name}({', '.join(pairs)})"


def output_text(raw: msgspec.Raw) -> str:
    """A JSON output as text: strings as they are, the rest as JSON."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return bytes(raw).decode("utf-8", "replace")
    return value_text(value)


def value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        texts = [_part_text(part) for part in value]
        if all(texts):
            return " ".join(texts)
    return msgspec.json.encode(value).decode()


def item_text(item: Any) -> str:
    """What a message or reasoning item says."""
    if not isinstance(item, dict):
        return value_text(item)
    content = item.get("content") or item.get("summary") or ""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content if isinstance(part, dict))


def _part_text(part: dict[str, Any]) -> str:
    text = part.get("text") or part.get("refusal")
    if isinstance(text, str):
        return text
    kind = str(part.get("type", ""))
    return f"[{kind.removeprefix('input_')}]" if kind else ""


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
