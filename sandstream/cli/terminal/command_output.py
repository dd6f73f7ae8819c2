"""The output of commands in sandboxes as lines, while they run: the first ones, then how many."""

from __future__ import annotations

from sandstream_bus.counts import numbered
from sandstream_bus.wire.messages import CallFinished, CallRequested
from sandstream_bus.wire.sandboxes import LiveOutput

from sandstream._inspect.live_output import BOTH, OutputText, Stream
from sandstream.cli.terminal.event_lines import LABEL_WIDTH
from sandstream.cli.terminal.render import Screen, clean, pad, shorten

MOST_LINES = 12
_INDENT = f"{'':8}  {pad('│', LABEL_WIDTH)}  "


class CommandOutput:
    """One command's output, cut into lines."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._rests = dict.fromkeys(BOTH, "")
        self._shown = 0
        self._hidden = 0

    @property
    def is_shown(self) -> bool:
        return self._shown > 0

    def add(self, stream: Stream, text: str) -> None:
        """The next piece of a stream."""
        *lines, self._rests[stream] = (self._rests[stream] + text).split("\n")
        for line in lines:
            self._line(line)

    def finish(self) -> None:
        for rest in self._rests.values():
            if rest:
                self._line(rest)
        if self._hidden:
            self._put(f"… {numbered(self._hidden, 'more line')}")

    def _line(self, text: str) -> None:
        if self._shown < MOST_LINES:
            self._shown += 1
            self._put(text.rsplit("\r", 1)[-1] if "\r" in text.rstrip("\r") else text)
        else:
            self._hidden += 1

    def _put(self, text: str) -> None:
        room = max(20, min(self._screen.width, 200) - len(_INDENT))
        shown = shorten(clean(text).expandtabs(4).rstrip(), room)
        self._screen.line(self._screen.paint((_INDENT + shown).rstrip(), "dim"))


class LiveCommands:
    """The commands of one run that are under way. Tell it of calls before and after their lines."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._names: dict[str, str] = {}
        """What the output of a call is named by, by our own id of the call."""
        self._running: dict[str, CommandOutput] = {}
        self._texts: dict[str, OutputText] = {}
        self._early: dict[str, list[tuple[Stream, str]]] = {}
        """Output that came before its call was told."""

    def requested(self, call: CallRequested) -> None:
        """Its line was written: output may follow."""
        if not call.sandbox:
            return
        name = call.call_id or call.call
        self._names[call.call] = name
        self._running[name] = CommandOutput(self._screen)
        for stream, text in self._early.pop(name, ()):
            self._running[name].add(stream, text)

    def finished(self, call: CallFinished) -> bool:
        """Its line comes next. Was output of it shown?"""
        output = self._running.pop(self._names.get(call.call, ""), None)
        if output is None:
            return False
        output.finish()
        return output.is_shown

    def take(self, piece: LiveOutput) -> None:
        """A piece of a command's output. Bytes that come twice or late are not shown."""
        text = self._texts.setdefault(piece.call, OutputText()).take(piece)
        if text:
            self.add(piece.call, piece.stream, text)

    def add(self, call: str, stream: Stream, text: str) -> None:
        """The same for text that is known to be new."""
        output = self._running.get(call)
        if output is not None:
            output.add(stream, text)
        elif call not in self._names.values():
            self._early.setdefault(call, []).append((stream, text))
