"""The output of commands in sandboxes as lines, while they run: the first ones, then how many."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.nats.live_copies import is_unstored
from sandstream_bus.nats.subscription import CoreMessage
from sandstream_bus.wire.messages import CallFinished, CallRequested
from sandstream_bus.wire.sandboxes import LiveOutput

from sandstream.cli.terminal.event_lines import LABEL_WIDTH
from sandstream.cli.terminal.render import Screen, clean, pad, shorten

MOST_LINES = 12
_INDENT = f"{'':8}  {pad('│', LABEL_WIDTH)}  "

_decode = msgspec.json.Decoder(LiveOutput).decode
Stream = Literal["stdout", "stderr"]


class CommandOutput:
    """One command's output, cut into lines. Bytes that come twice or late are not shown."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in _BOTH}
        self._rests = dict.fromkeys(_BOTH, "")
        self._offsets = dict.fromkeys(_BOTH, 0)
        self._shown = 0
        self._hidden = 0

    @property
    def is_shown(self) -> bool:
        return self._shown > 0

    def take(self, piece: LiveOutput) -> None:
        known = self._offsets[piece.stream]
        end = piece.offset + len(piece.data)
        if end <= known:
            return
        data = piece.data[max(0, known - piece.offset) :]
        self._offsets[piece.stream] = end
        text = self._rests[piece.stream] + self._decoders[piece.stream].decode(data)
        *lines, self._rests[piece.stream] = text.split("\n")
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


_BOTH: tuple[Stream, Stream] = ("stdout", "stderr")


class LiveCommands:
    """The commands of one run that are under way. Tell it of calls before and after their lines."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._names: dict[str, str] = {}
        """What the output of a call is named by, by our own id of the call."""
        self._running: dict[str, CommandOutput] = {}
        self._early: dict[str, list[LiveOutput]] = {}
        """Output that came before its call was told."""

    def requested(self, call: CallRequested) -> None:
        """Its line was written: output may follow."""
        if not call.sandbox:
            return
        name = call.call_id or call.call
        self._names[call.call] = name
        self._running[name] = CommandOutput(self._screen)
        for piece in self._early.pop(name, ()):
            self._running[name].take(piece)

    def finished(self, call: CallFinished) -> bool:
        """Its line comes next. Was output of it shown?"""
        output = self._running.pop(self._names.get(call.call, ""), None)
        if output is None:
            return False
        output.finish()
        return output.is_shown

    def take(self, piece: LiveOutput) -> None:
        output = self._running.get(piece.call)
        if output is not None:
            output.take(piece)
        elif piece.call not in self._names.values():
            self._early.setdefault(piece.call, []).append(piece)


@contextlib.asynccontextmanager
async def heard(bus: Bus, run: str, take: Callable[[LiveOutput], None]) -> AsyncIterator[None]:
    """Give the output of a run's commands to ``take`` as it comes."""

    def receive(message: CoreMessage) -> None:
        if not is_unstored(message):
            return
        try:
            piece = _decode(message.data)
        except NOT_JSON:  # a client can direct a server's acknowledgement to this subject
            return
        take(piece)

    subscription = await bus.connection.subscribe(bus.subjects.output(run), receive)
    try:
        yield
    finally:
        await subscription.close()
