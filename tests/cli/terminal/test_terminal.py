"""What a person sees on a terminal: colour, and the live table redrawn in place."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cli.cli_process import DEADLINE_S, Cli, wait_until

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with a command on it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.raw = ""

    def read(self) -> bool:
        """Take in what is there; False at the end."""
        if not select.select([self._fd], [], [], 0.05)[0]:
            return True
        try:
            piece = os.read(self._fd, 65536)
        except OSError:
            return False
        self.raw += piece.decode()
        return bool(piece)

    def read_to_end(self) -> str:
        wait_until(lambda: not self.read(), "the end of the output")
        return self.raw

    @property
    def frame(self) -> str:
        """The last picture, without colours."""
        return _ESCAPES.sub("", self.raw.rpartition("\x1b[H")[2])

    def wait_for(self, pattern: str) -> str:
        def found() -> bool:
            self.read()
            return re.search(pattern, self.frame) is not None

        wait_until(found, f"{pattern!r} on the terminal")
        return self.frame


@contextmanager
def on_terminal(
    cli: Cli, *arguments: str, columns: int = 80, env: dict[str, str] | None = None
) -> Iterator[tuple[Terminal, Any]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = cli.start(*arguments, env={"TERM": "xterm"} | (env or {}), stdout=theirs)
    os.close(theirs)
    try:
        yield Terminal(ours), process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
        os.close(ours)


@pytest.mark.parametrize(
    ("env", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_only_where_it_is_wanted(
    served: Cli, finished: str, env: dict[str, str], has_colour: bool
) -> None:
    with on_terminal(served, "watch", finished, env=env) as (terminal, process):
        text = terminal.read_to_end()
        assert process.wait(DEADLINE_S) == 0
    assert ("\x1b[" in text) is has_colour
    assert "completed" in text


def test_lines_are_cut_to_the_terminal(served: Cli, finished: str) -> None:
    with on_terminal(served, "runs", columns=72) as (terminal, _):
        text = _ESCAPES.sub("", terminal.read_to_end())
    assert finished in text
    assert max(map(len, text.splitlines())) <= 72


def test_the_live_table(served: Cli, finished: str) -> None:
    with on_terminal(served, "watch") as (terminal, process):
        terminal.wait_for("RUN +STATE +AGENT +AGE")
        run = served("submit", "assistant", "hang in there").out.strip()
        frame = terminal.wait_for(rf"{run} +running .*→ get_weat")
        assert re.search(r"^[1-9]\d* running", frame)
        assert served("cancel", run).code == 0
        frame = terminal.wait_for(rf"{run} +cancelled +assistant +\d+s ")
        assert re.search("AGENT +AGE +TOOK", frame), "an age is one, and how long it took another"
        assert "TAKEOVERS" not in frame
        assert max(map(len, frame.splitlines())) <= 80
        process.send_signal(signal.SIGINT)
        text = terminal.read_to_end()
        assert process.wait(DEADLINE_S) == 130
        assert process.stderr.read() == ""
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert run in text.rpartition("\x1b[?1049l")[2]  # the last picture stays


def test_without_a_terminal_a_line_for_each_change(served: Cli) -> None:
    process = served.start("watch")
    other = served.start("watch", "--json")
    run = served("submit", "assistant", "How is it?", "--wait", "--json").one["run_id"]
    lines: list[str] = []
    while not (lines and lines[-1].startswith(f"{run}  completed")):
        lines.append(process.stdout.readline())
    assert lines[-1].endswith("turns=2  tokens=" + lines[-1].split("tokens=")[1])
    while f'"run_id":"{run}","agent":"assistant","status":"completed"' not in (
        other.stdout.readline()
    ):
        pass
    for one in (process, other):
        one.send_signal(signal.SIGINT)
        _, err = one.communicate(timeout=DEADLINE_S)
        assert (one.returncode, err) == (130, "")
