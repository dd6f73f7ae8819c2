"""Shows how far a command has read the log."""

from __future__ import annotations

import time

from sandstream.cli.session import say
from sandstream.cli.terminal.render import Screen

_QUIET_S = 1.0
"""Progress is shown only if reading takes longer than this."""


class Progress:
    """Shows how far the log was read: redraws one line, or prints it once without a terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._began = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> Progress:
        return self

    def __call__(self, reached: int, last: int) -> None:
        if time.monotonic() - self._began < _QUIET_S:
            return
        text = f"reading the log: {100 * reached // max(last, 1)} %"
        if self._screen.is_terminal:
            self._screen.stream.write(f"\r{text}\x1b[K")
            self._screen.stream.flush()
        elif not self._is_shown:
            say("reading the log")
        self._is_shown = True

    def __exit__(self, *exc: object) -> None:
        if self._is_shown and self._screen.is_terminal:
            self._screen.stream.write("\r\x1b[K")
            self._screen.stream.flush()
