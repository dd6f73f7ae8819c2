"""The events of a session as lines, while they happen."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from sandstream_bus.counts import numbered
from sandstream_bus.wire.messages import CallFinished, CallRequested, ModelAnswered

from sandstream._inspect.texts import tokens_text
from sandstream.cli.commands.session.texts import STYLES, state_text
from sandstream.cli.terminal.command_output import LiveCommands
from sandstream.cli.terminal.event_lines import LABEL_WIDTH, EventLines
from sandstream.cli.terminal.render import Screen, clean, one_line, pad
from sandstream.cli.terminal.run_table import STATUS_STYLES
from sandstream.sessions.events import (
    CommandOutput,
    RunStep,
    SessionChanged,
    SessionEvent,
    TextDelta,
    TurnBegan,
    TurnEnded,
)
from sandstream.sessions.views import SessionInfo


class _Told(NamedTuple):
    """The state of the lines of one run."""

    lines: EventLines
    commands: LiveCommands


class SessionTeller:
    """Writes one session. Text that comes in pieces is written as it comes, and not again."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._told: dict[str, _Told] = {}
        self._hinted: set[tuple[str, str]] = set()
        self._info: SessionInfo | None = None
        self._is_open = False
        """Whether a line of the model's text is unfinished."""
        self._has_said = False
        """Whether the text of the next answer was written in pieces, from its beginning."""

    def tell(self, event: SessionEvent) -> None:
        """Write what is new."""
        match event:
            case SessionChanged():
                self._changed(event.info)
            case TurnBegan():
                self._close()
                was = " (finished)" if event.is_past else ""
                self._line("turn", f"{event.turn}{was} · run {event.run}", "bold")
            case RunStep():
                self._step(event)
            case TextDelta():
                self._delta(event)
            case CommandOutput():
                self._close()
                if event.run in self._told:
                    self._told[event.run].commands.add(event.call, event.stream, event.text)
            case TurnEnded():
                self._close()
                turn = event.turn
                saved = f"checkpoint {turn.tree[:12]}" if turn.tree else turn.unsaved
                facts = [f"turn {turn.number} {turn.status.replace('_', ' ')}", saved]
                if turn.usage.total_tokens:
                    facts.append(tokens_text(turn.usage.total_tokens))
                text = " · ".join(it for it in facts if it)
                self._line("saved", text, STATUS_STYLES[turn.status])
            case _:
                assert_never(event)

    def _changed(self, info: SessionInfo) -> None:
        before, self._info = self._info, info
        if before is None:
            self._line("session", f"{info.id} · {info.title}", "bold")
        if before is None or state_text(before) != state_text(info):
            self._close()
            self._line("now", state_text(info), STYLES[info.activity])
        waiting = len(info.queue)
        if waiting and (before is None or len(before.queue) != waiting):
            self._close()
            verb = "waits" if waiting == 1 else "wait"
            self._line("queue", f"{numbered(waiting, 'message')} {verb}", "blue")
        refusal = info.refusal
        if before is not None and refusal is not None and refusal != before.refusal:
            self._close()
            self._line("refused", f"{refusal.kind}: {refusal.error.message}", "red")

    def _step(self, event: RunStep) -> None:
        self._close()
        row = event.row
        known = self._told.get(row.run) or self._meet(event)
        finished = row.event if isinstance(row.event, CallFinished) else None
        was_shown = finished is not None and known.commands.finished(finished)
        lines = known.lines.render_row(row, is_output_shown=was_shown)
        if isinstance(row.event, ModelAnswered) and not event.depth:
            if self._has_said:
                lines = lines[:1]  # its text was written
            self._has_said = False
        for line in lines:
            self._screen.line(line)
        if isinstance(row.event, CallRequested):
            known.commands.requested(row.event)

    def _meet(self, event: RunStep) -> _Told:
        lines = EventLines(
            self._screen, depth=event.depth, name=event.name, hinted=self._hinted, hints=True
        )
        self._told[event.row.run] = _Told(lines, LiveCommands(self._screen))
        return self._told[event.row.run]

    def _delta(self, event: TextDelta) -> None:
        if event.kind != "text":
            return
        if not self._is_open:
            label = self._screen.paint(pad("says", LABEL_WIDTH), "green")
            self._screen.stream.write(f"{pad('', 8)}  {label}  ")
            self._is_open = self._has_said = True
        self._screen.stream.write(clean(event.text))
        self._screen.stream.flush()

    def _line(self, label: str, text: str, style: str) -> None:
        shown = self._screen.paint(pad(label, LABEL_WIDTH), style)
        self._screen.line(f"{pad('', 8)}  {shown}  {one_line(text)}")

    def _close(self) -> None:
        if self._is_open:
            self._screen.line()
            self._is_open = False
