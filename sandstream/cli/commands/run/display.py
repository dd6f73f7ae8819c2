"""What ``sandstream run`` shows of its run while it works: lines on stderr, or JSON on stdout."""

from __future__ import annotations

import contextlib
import sys

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    LiveEvent,
    ModelAnswered,
    RunDone,
)
from sandstream_bus.wire.sandboxes import LiveOutput

from sandstream._inspect.rows import record_of
from sandstream._inspect.texts import output_text
from sandstream._inspect.tree_follower import TreeEvent
from sandstream.cli.commands.sandboxes.lines import saved_tree
from sandstream.cli.session import put_json
from sandstream.cli.terminal.command_output import LiveCommands
from sandstream.cli.terminal.event_lines import LABEL_WIDTH, EventLines
from sandstream.cli.terminal.render import clean, err, pad
from sandstream.cli.terminal.tree_lines import LiveOutputs, TreeTeller


class _Delta(msgspec.Struct):
    type: str = ""
    delta: str = ""


_decode_delta = msgspec.json.Decoder(_Delta).decode


class Display:
    """One run, and those below it. Text of the one at the top that comes in pieces is written as
    it comes, and not told again. ``hints``: whether to say how questions can be answered.
    """

    def __init__(
        self,
        bus: Bus,
        run: str,
        stack: contextlib.AsyncExitStack,
        *,
        quiet: bool,
        as_json: bool,
        hints: bool,
    ) -> None:
        self._run = run
        self._quiet = quiet
        self._as_json = as_json
        self._screen = err()
        self._below = TreeTeller(self._screen, LiveOutputs(bus, stack), hints=hints)
        self._lines = EventLines(self._screen, hints=hints)
        self._said = ""
        self._last_said = ""
        self._commands = LiveCommands(self._screen)

    async def below(self, told: TreeEvent, event: LogEvent) -> None:
        """An event of a run that this one has started."""
        if self._as_json:
            put_json(record_of(told.member.run, event))
        if not self._quiet:
            self._close_text()
            await self._below.tell(told, is_shown=True)

    def event(self, event: LogEvent) -> None:
        if self._as_json:
            put_json(record_of(self._run, event))
        if self._quiet:
            return
        self._close_text()
        was_shown = isinstance(event.event, CallFinished) and self._commands.finished(event.event)
        lines = self._lines.render(event, is_output_shown=was_shown)
        if isinstance(event.event, ModelAnswered) and self._said:
            lines = lines[:1]  # its text was shown
        if isinstance(event.event, RunDone):
            lines = lines[:1]  # output and error come last, from the command itself
            self._last_said = self._said
            if self._last_said and output_text(event.event.output) != self._last_said:
                self._last_said = ""
        elif not isinstance(event.event, ModelAnswered) and not _is_about_sandbox(event):
            self._said = ""
        for line in lines:
            self._screen.line(line)
        if isinstance(event.event, CallRequested):
            self._commands.requested(event.event)
        if isinstance(event.event, CallFinished) and saved_tree(event.event):
            self._has_files = True
        if isinstance(event.event, RunDone) and self._has_files:
            hint = f"{pad('', 8 + 2 + LABEL_WIDTH)}  files: sandstream artifacts ls {self._run}"
            self._screen.line(self._screen.paint(hint, "dim"))

    def output(self, piece: LiveOutput) -> None:
        """A piece of a command's output."""
        if self._quiet or self._as_json:
            return
        self._close_text()
        self._commands.take(piece)

    def delta(self, event: LiveEvent) -> None:
        if self._quiet or self._as_json:
            return
        try:
            piece = _decode_delta(event.event)
        except msgspec.DecodeError:
            return
        if piece.type != "response.output_text.delta" or not piece.delta:
            return
        if not self._is_open:
            label = self._screen.paint(pad("says", LABEL_WIDTH), "green")
            self._screen.stream.write(f"{pad('', 8)}  {label}  ")
            self._said = ""
            self._is_open = True
        self._said += piece.delta
        self._screen.stream.write(clean(piece.delta))
        self._screen.stream.flush()

    def end(self) -> bool:
        """Whether the final output was just shown on the same terminal as stdout."""
        both = self._screen.is_terminal and sys.stdout.isatty()
        return both and bool(self._last_said)

    _is_open = False
    _has_files = False

    def _close_text(self) -> None:
        if self._is_open:
            self._screen.line()
            self._is_open = False


def _is_about_sandbox(event: LogEvent) -> bool:
    """Whether the event opens, saves or closes a sandbox; these come after the last message."""
    return isinstance(event.event, CallRequested | CallFinished) and event.event.traits.is_sandbox
