"""What ``sandstream run`` shows of its run while it works: lines on stderr, or JSON on stdout."""

from __future__ import annotations

import sys

import msgspec
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import LiveEvent, ModelAnswered, RunDone

from sandstream.cli.event_lines import LABEL_WIDTH, EventLines, output_text, record_of
from sandstream.cli.render import clean, err, pad
from sandstream.cli.session import put_json


class _Delta(msgspec.Struct):
    type: str = ""
    delta: str = ""


_decode_delta = msgspec.json.Decoder(_Delta).decode


class Display:
    """One run. Text that comes in pieces is written as it comes, and not told again."""

    def __init__(self, run: str, *, quiet: bool, as_json: bool) -> None:
        self._run = run
        self._quiet = quiet
        self._as_json = as_json
        self._screen = err()
        self._lines = EventLines(self._screen)
        self._said = ""
        self._last_said = ""

    def event(self, event: LogEvent) -> None:
        if self._as_json:
            put_json(record_of(self._run, event))
        if self._quiet:
            return
        self._close_text()
        lines = self._lines.render(event)
        if isinstance(event.event, ModelAnswered) and self._said:
            lines = lines[:1]  # its text was shown
        if isinstance(event.event, RunDone):
            lines = lines[:1]  # output and error come last, from the command itself
            self._last_said = self._said
            if self._last_said and output_text(event.event.output) != self._last_said:
                self._last_said = ""
        if not isinstance(event.event, RunDone):
            self._said = self._said if isinstance(event.event, ModelAnswered) else ""
        for line in lines:
            self._screen.line(line)

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
        """Was the final output just shown, to a person who would see it again on stdout?"""
        both = self._screen.is_terminal and sys.stdout.isatty()
        return both and bool(self._last_said)

    _is_open = False

    def _close_text(self) -> None:
        if self._is_open:
            self._screen.line()
            self._is_open = False
