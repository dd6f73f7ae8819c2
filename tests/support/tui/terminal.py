"""A real terminal for the UI: tmux, in which commands run and keys are pressed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 45.0


class Terminal:
    """One window of a tmux server of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def press(self, *keys: str) -> None:
        """Press keys, by the names of tmux."""
        self.tmux("send-keys", *keys)

    def type(self, words: str) -> None:
        """Type a text, and Enter."""
        self.tmux("send-keys", "-l", words)
        self.tmux("send-keys", "Enter")

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def shows(self, *parts: str, without: str = "") -> str:
        """Wait until the screen shows all of these."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            shown = self.text()
            if all(it in shown for it in parts) and (not without or without not in shown):
                return shown
            if time.monotonic() > deadline:
                raise AssertionError(f"the terminal does not show {parts}:\n{shown}")
            time.sleep(0.05)

    def resize(self, columns: int, lines: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def run(self, *arguments: str) -> None:
        """Start ``sandstream`` in the shell of the terminal."""
        command = shlex.join([sys.executable, "-m", "sandstream.cli", *arguments])
        self.type(f"{command}; echo left with $?")


@contextmanager
def terminal(
    directory: Path, env: Mapping[str, str], *, columns: int = 110, lines: int = 34
) -> Iterator[Terminal]:
    """A shell in a terminal of that size. What runs there ends with it."""
    socket = directory / "tmux"
    found = Terminal(socket)
    own = {"TERM": "xterm-256color", "PS1": "$ ", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
    # in the environment of the server: everything in the window inherits it
    subprocess.run(
        [
            *("tmux", "-S", str(socket), "-f", "/dev/null", "new-session", "-d"),
            *("-x", str(columns), "-y", str(lines), "sh"),
        ],
        env={**own, **env},
        check=True,
    )
    try:
        found.tmux("set-option", "-g", "escape-time", "0")
        yield found
    finally:
        found.tmux("kill-server")
