"""A run's events as lines that people read: for ``watch``, ``run``, ``replay`` and ``show``."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from sandstream_bus.counts import numbered
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.attempts import short_name
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
from sandstream._inspect.rows import EventRow, Item
from sandstream._inspect.texts import (
    call_text,
    error_text,
    item_text,
    output_text,
    tokens_text,
    usage_text,
    value_text,
)
from sandstream.cli.commands.approvals.texts import asked_text as question_text
from sandstream.cli.commands.approvals.texts import decided_text, hint_texts, open_text
from sandstream.cli.commands.sandboxes.lines import (
    asked_text,
    life_text,
    result_text,
    whole_text,
)
from sandstream.cli.terminal.mask import masked_line
from sandstream.cli.terminal.render import (
    Screen,
    clock,
    duration,
    pad,
    seconds_between,
    shorten,
)
from sandstream.cli.terminal.run_table import STATUS_STYLES

LABEL_WIDTH = 7
_INDENT = 8 + 2 + LABEL_WIDTH + 2
_STEP = 2
"""How much further to the right the events of a child run are."""


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
        self._reader = RunReader()
        self._started_at = ""
        self._said = ""

    def skip(self, event: LogEvent) -> None:
        """Take an event in without showing it."""
        self._lines(self._reader.feed(event))

    def render(self, event: LogEvent, *, is_output_shown: bool = False) -> list[str]:
        """The lines of one event, cut to the screen. ``is_output_shown``: of the command that
        finished, as it came.
        """
        return self.render_row(self._reader.feed(event), is_output_shown=is_output_shown)

    def render_row(self, row: EventRow, *, is_output_shown: bool = False) -> list[str]:
        """The same for an event that was read already."""
        time = clock(row.time)
        lines: list[str] = []
        for line in [*_taken_over(row), *self._lines(row, is_output_shown)]:
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

    def _lines(self, row: EventRow, is_output_shown: bool = False) -> list[Line]:
        event = row.event
        match event:
            case RunStarted():
                self._started_at = row.time
                return _started(event, row)
            case RunRestored():
                past = numbered(len(event.events), "event")
                return [Line("restore", f"continues from a saved state of {past}", "yellow")]
            case ConversationOpened():
                text = f"{numbered(len(event.history), 'item')} of its conversation"
                return [Line("history", text, "dim", True)]
            case InputStaged():
                return [Line("input", f"{_last_text(row.items)}{_from(event.by)}", "blue")]
            case ModelAnswered():
                lines = _answered(event, row.items)
                self._said = next((line.text for line in lines if line.label == "says"), "")
                return lines
            case ModelDeferred():
                text = f"{event.error.message}; again in {duration(event.delay_s)}"
                return [Line("wait", f"{text} (retry {event.attempt})", "yellow")]
            case CallRequested():
                return _requested(event)
            case CallStarted():
                return [Line("begin", f"{row.name}, at most once", "dim", True)]
            case CallFinished():
                return [
                    *(Line("guard", text, "bold yellow") for text in row.objections),
                    *_finished(event, row, is_output_shown),
                ]
            case TurnRequested():
                return _turn(event, row)
            case ApprovalRequested():
                return [Line("asks", question_text(event), "yellow")]
            case ApprovalDecided():
                return [_decision(event, row)]
            case RunWaiting():
                return self._waiting(event, row.run)
            case ChildWaiting():
                text = f"{row.name}: {open_text(event.approvals)}"
                return [Line("waits", text, "yellow", True)]
            case CancelRequested():
                when = "now" if event.mode == "immediate" else "after this turn"
                return [Line("cancel", f"{when}{_because(event.reason)}", "yellow")]
            case RunMoved():
                return [Line("move", f"another process goes on (pool {event.host})", "yellow")]
            case RunReopened():
                return [Line("reopen", event.reason, "yellow")]
            case RunDone():
                return self._done(event, row.time)
            case _:
                assert_never(event)

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
            facts.append(tokens_text(event.usage.total_tokens))
        if took is not None:
            facts.append(duration(took))
        lines = [Line("done", " · ".join(facts), f"bold {STATUS_STYLES[event.status]}")]
        if event.error is not None:
            lines.append(Line("why", error_text(event.error), "red"))
        elif event.output and output_text(event.output) != self._said:
            lines.append(Line("output", output_text(event.output), "green"))
        return lines


def _taken_over(row: EventRow) -> list[Line]:
    """The line of a takeover before this event. A move has its own line."""
    if not row.is_takeover:
        return []
    lost = f"{short_name(row.lost_worker)}, which" if row.lost_worker else "a process that"
    by = short_name(row.attempt.worker) or "another process"
    text = f"attempt {row.attempt.number}: {by} took over from {lost} died or lost its lease"
    return [Line("lost", text, "yellow")]


def _started(event: RunStarted, row: EventRow) -> list[Line]:
    agent = event.graph.agents.get(event.graph.start)
    text = f"{event.graph.start} on {agent.model}" if agent else event.graph.start
    if event.parent is not None:
        text += f" · run {row.run}"
    if (part := event.options.memory) is not None:
        text += f" · memory of {part.scope}"
    asked = [Line("user", item_text(it.value), "blue") for it in row.items[-1:]]
    return [Line("start", text, "bold"), *asked]


def _requested(event: CallRequested) -> list[Line]:
    if event.traits.is_sandbox:
        return [Line("sandbox", asked_text(event.kind, event.sandbox), "dim", True)]
    if event.traits.is_tool:
        label = "agent" if event.traits.is_child_run else "call"
        return [Line(label, call_text(event.name, event.arguments), "magenta")]
    what = f"{event.kind} {event.name}".strip()
    return [Line("ask", f"{what} for turn {event.turn}", "dim", True)]


def _finished(event: CallFinished, row: EventRow, is_output_shown: bool) -> list[Line]:
    name = row.name
    took = f" · {duration(event.duration_ms / 1000)}" if event.duration_ms else ""
    if event.traits.is_sandbox and event.error is None:
        return [Line("sandbox", f"{life_text(event)}{took}", "cyan")]
    if not event.traits.is_tool:
        failed = f": {event.error.message}" if event.error else ""
        return [Line("answer", f"{name}{took}{failed}", "red" if failed else "dim", not failed)]
    if event.traits.is_child_run:
        took = f" · {numbered(event.turns, 'turn')}, {tokens_text(event.usage.total_tokens)}"
    if event.error is not None:
        told = " (told to the model)" if event.output else ""
        return [Line("error", f"{name}: {event.error.message}{told}{took}", "red")]
    text = output_text(event.output)
    if row.request is not None and row.request.sandbox:
        text = result_text(text, is_output_shown=is_output_shown)
    lines = [Line("result", f"{name} → {text}{took}", "magenta")]
    if whole := whole_text(event, row.run):
        lines.append(Line("", whole, "", True))
    return lines


def _turn(event: TurnRequested, row: EventRow) -> list[Line]:
    match event.reason:
        case "handoff":
            return [Line("handoff", f"{row.agent_before} → {event.agent}", "bold blue")]
        case "session":
            return [Line("turn", "its conversation is free", "blue")]
        case "waited":
            return [Line("turn", f"{event.turn}: {event.agent} (after the wait)", "blue")]


def _decision(event: ApprovalDecided, row: EventRow) -> Line:
    label, style = ("approve", "green") if event.approve else ("reject", "red")
    text = decided_text(row.name_below or row.name, event)
    if row.is_late:
        return Line(label, f"{text} (too late: it was decided)", style, True)
    return Line(label, text, style, is_quiet=bool(row.name_below))


def _answered(event: ModelAnswered, items: list[Item]) -> list[Line]:
    facts = [f"turn {event.turn}"]
    if event.duration_ms:
        facts.append(duration(event.duration_ms / 1000))
    facts.append(usage_text(event.usage))
    lines: list[Line] = []
    for item in items:
        match item.kind:
            case "call":
                pass  # told by the call itself
            case "message":
                lines.append(Line("says", item.text, "green"))
            case "thought":
                if item.text:
                    lines.append(Line("thinks", item.text, "dim", True))
            case _:
                lines.append(Line("uses", item.type.removesuffix("_call"), "magenta"))
    if calls := sum(item.kind == "call" for item in items):
        facts.append(numbered(calls, "call"))
    return [Line("model", " · ".join(facts), "cyan"), *lines]


def _last_text(items: list[Item]) -> str:
    """The last of the items, and how many there are."""
    if not items:
        return ""
    text = item_text(items[-1].value) or value_text(items[-1].value)
    return text if len(items) == 1 else f"{text} (the last of {len(items)} items)"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _from(who: str) -> str:
    return f" (from {who})" if who else ""
