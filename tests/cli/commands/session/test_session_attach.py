"""``sandstream session attach``: what a person sees and types there."""

from __future__ import annotations

import os
import pty
import signal
import time
from typing import Any

import pytest
from cli.cli_process import DEADLINE_S, Cli

pytestmark = pytest.mark.timeout(60)


class Terminal:
    """A command on a terminal, read and typed to step by step."""

    def __init__(self, cli: Cli, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process: Any = cli.start(
            *arguments, env={"TERM": "dumb"}, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str) -> None:
        """Read until a text is there that was not read before."""
        start = len(self.seen)
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen[start:]:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self._ours, 65536).decode()
            except OSError:
                raise AssertionError(f"it ended without {text!r}: {self.seen!r}") from None

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code: int = self.process.wait(DEADLINE_S)
        while True:
            try:
                self.seen += os.read(self._ours, 65536).decode()
            except OSError:
                break
        os.close(self._ours)
        return code


def test_lines_are_sent_and_answers_are_seen(sandboxed: Cli) -> None:
    assert sandboxed.here("session", "new", "coder", "--id", "seen").code == 0
    terminal = Terminal(sandboxed, "session", "attach", "seen")
    terminal.until("idle")
    terminal.type("say escapes\n")
    terminal.until("checkpoint")
    assert "alert" in terminal.seen and "turn 1 completed" in terminal.seen
    assert "\x1b" not in terminal.seen and "\u202e" not in terminal.seen
    assert r"\u202e" in terminal.seen
    assert terminal.end() == 0
    assert "detached: the session goes on" in terminal.seen
    assert sandboxed.here("session", "show", "seen", "--json").one["turn"] == 1
    assert sandboxed.here("session", "destroy", "seen", "--yes").code == 0


def test_a_new_session_is_attached_at_once_and_past_turns_are_shown(sandboxed: Cli) -> None:
    first = Terminal(
        sandboxed, "session", "new", "coder", "write files", "--id", "both", "--attach"
    )
    first.until("checkpoint")
    assert "written so far" in first.seen  # what the command wrote
    second = Terminal(sandboxed, "session", "attach", "both", "--since", "0")
    second.until("checkpoint")
    assert "Written." in second.seen
    first.type("more\n")
    second.until("turn 2")
    assert sandboxed.here("session", "destroy", "both", "--yes").code == 0
    for terminal in (first, second):
        terminal.until("is destroyed")
        assert terminal.process.wait(DEADLINE_S) == 0


def test_programs_get_events_as_json_lines(sandboxed: Cli) -> None:
    assert sandboxed.here("session", "new", "coder", "--id", "lines").code == 0
    assert sandboxed.here("session", "send", "lines", "talk in turns", "--wait").code == 0
    assert sandboxed.here("session", "destroy", "lines", "--yes").code == 0
    told = sandboxed("session", "attach", "lines", "--json", "--since", "0")
    assert told.code == 0 and told.err == "session lines is destroyed\n"
    kinds = [it["type"] for it in told.lines]
    assert (kinds[0], kinds[1]) == ("session.changed", "turn.began")
    assert "run.step" in kinds and "turn.ended" in kinds
    steps = [it for it in told.lines if it["type"] == "run.step"]
    assert steps[0]["event"]["type"] == "run.started"
