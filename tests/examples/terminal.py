"""What a person sees on a terminal: a small emulation, and a program run in a pseudo-terminal.

Knows what our programs write: text, carriage return, newline, colours, and the erasing of a line.
Anything else is an error, because it would be drawn wrongly here.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

_ESCAPE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


class Terminal:
    """``rows`` is what stands on the screen, with all that has scrolled away."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[str] = [""]
        self.wrapped: list[str] = []
        """Rows that did not fit and went on in the next one."""
        self.lost: list[str] = []
        """What stood in a row before something else was written over it, or it was erased."""
        self._column = 0

    def write(self, text: str) -> None:
        position = 0
        while position < len(text):
            if text[position] == "\x1b":
                escape = _ESCAPE.match(text, position)
                assert escape is not None, f"not known here: {text[position : position + 8]!r}"
                self._control(escape[1], escape[2])
                position = escape.end()
                continue
            self._character(text[position])
            position += 1

    def _control(self, arguments: str, command: str) -> None:
        if command == "K":
            assert arguments in ("", "0", "2"), arguments
            kept = "" if arguments == "2" else self.rows[-1][: self._column]
            self._replace(kept)
        else:
            assert command == "m", f"not known here: ESC [ {arguments} {command}"

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
            return
        if character == "\n":
            self.rows.append("")
            self._column = 0
            return
        assert character.isprintable(), f"not known here: {character!r}"
        if self._column == self.columns:
            self.wrapped.append(self.rows[-1])
            self.rows.append("")
            self._column = 0
        row = self.rows[-1]
        if self._column < len(row):
            self._replace(row[: self._column])
            row = self.rows[-1]
        self.rows[-1] = row.ljust(self._column) + character
        self._column += 1

    def _replace(self, kept: str) -> None:
        """Overwriting erases the rest of the row here: programs that rely on it would be odd."""
        if self.rows[-1] != kept:
            self.lost.append(self.rows[-1])
        self.rows[-1] = kept


class InTerminal:
    """A program in a pseudo-terminal of so many columns; it has begun."""

    def __init__(self, command: list[str], environ: dict[str, str], columns: int) -> None:
        self.columns = columns
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            command,
            env=environ | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def to_the_end(self) -> tuple[int, Terminal]:
        """The exit code, and the screen."""
        raw = b""
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                break
            raw += piece
        os.close(self._ours)
        screen = Terminal(self.columns)
        screen.write(raw.decode())
        return self._process.wait(30), screen
