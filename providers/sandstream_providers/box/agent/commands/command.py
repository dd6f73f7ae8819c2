"""One command: its process, its streams into files, its end."""

from __future__ import annotations

import os
import time

from sandstream_providers.box.agent.commands.output import OutputStore
from sandstream_providers.box.agent.commands.spawn import Started
from sandstream_providers.box.agent.commands.tree import Family
from sandstream_providers.box.agent.loop import READ, WRITE, Loop

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable


CHUNK = 65536
READS_AT_ONCE = 4
LINGER_S = 0.1
"""How long output is awaited after the end, if a background process keeps the stream open."""


class Command:
    """The facts of a command, running or over. ``run`` adds a process to it."""

    def __init__(self, op: str, session: int, stdout: OutputStore, stderr: OutputStore):
        self.op = op
        self.session = session
        self.stdout = stdout
        self.stderr = stderr
        self.state = "running"
        self.exit_code: int | None = None
        self.killed = ""
        self.started_at = time.monotonic()
        self.cursor: tuple[int, int] = (0, 0)
        """How much of each stream was given in answers."""
        self.told = False
        """Whether an answer has said that it is over."""
        self.family: Family | None = None
        self.process: Running | None = None

    @property
    def over(self) -> bool:
        return self.state != "running"

    def use_files(self) -> None:
        """What was said to a client should outlive this process."""
        self.stdout.use_file()
        self.stderr.use_file()

    def said(self) -> tuple[int, int]:
        return self.stdout.total, self.stderr.total


class Running:
    """The process of a command and the agent's ends of its streams."""

    def __init__(
        self,
        loop: Loop,
        command: Command,
        started: Started,
        on_output: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._command = command
        self._on_output = on_output
        self._on_end = on_end
        self.pid = started.pid
        self._tty = started.stderr is None
        self._streams = {started.stdout: command.stdout}
        if started.stderr is not None:
            self._streams[started.stderr] = command.stderr
        self._stdin = started.stdin
        self._to_write = bytearray()
        self._close_stdin_after = False
        self._exit_code: int | None = None
        self._ended = False
        self.killing = False
        for fd in self._streams:
            self._watch(fd)

    @property
    def stdin_open(self) -> bool:
        return self._stdin is not None and not self._close_stdin_after

    def write(self, data: bytes, *, close_after: bool = False) -> None:
        """Given to the command as fast as it reads."""
        self._to_write += data
        self._close_stdin_after = self._close_stdin_after or close_after
        self._write_stdin()

    def exited(self, code: int) -> None:
        """The process itself has ended."""
        self._exit_code = code
        for fd in list(self._streams):
            self._drain(fd)
        self._end_if_over()
        if not self._ended:
            self._loop.after(LINGER_S, self._end_anyway)

    @property
    def has_exited(self) -> bool:
        """Whether its exit code is known."""
        return self._exit_code is not None

    def killing_is_over(self) -> None:
        self.killing = False
        if self._exit_code is not None:
            self._end_anyway()

    def _end_if_over(self) -> None:
        if self._exit_code is not None and not self._streams:
            self._end_anyway()

    def _end_anyway(self) -> None:
        if self._ended or self.killing:
            return
        self._ended = True
        self._command.exit_code = self._exit_code
        self._command.state = "exited"
        self._close_stdin()
        self._on_end()

    def _watch(self, fd: int) -> None:
        events = READ
        if self._tty and self._to_write:
            events |= WRITE
        self._loop.watch(fd, events, lambda ready: self._stream_ready(fd, ready))

    def _stream_ready(self, fd: int, ready: int) -> None:
        if ready & WRITE:
            self._write_stdin()
        if ready & READ and fd in self._streams:
            for _ in range(READS_AT_ONCE):
                if not self._read_once(fd):
                    break
            self._end_if_over()

    def _drain(self, fd: int) -> None:
        """All that the ended process left in the pipe; a background one must not keep us."""
        for _ in range(64):
            if not self._read_once(fd):
                return

    def _read_once(self, fd: int) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal whose other side is closed
        if not data:
            self._loop.unwatch(fd)
            del self._streams[fd]
            if fd == self._stdin:
                self._stdin = None
            os.close(fd)
            return False
        if not self._ended:  # what background processes say later is read but not kept
            self._streams[fd].write(data)
            self._on_output()
        return len(data) == CHUNK or self._tty

    def _write_stdin(self) -> None:
        fd = self._stdin
        while fd is not None and self._to_write:
            try:
                count = os.write(fd, self._to_write[:CHUNK])
            except BlockingIOError:
                break
            except OSError:
                self._to_write.clear()  # no process reads it any more
                if not self._tty:
                    self._close_stdin()
                return
            del self._to_write[:count]
        if fd is None:
            self._to_write.clear()
        elif self._tty:
            self._watch(fd)
        elif self._to_write:
            self._loop.watch(fd, WRITE, lambda _ready: self._write_stdin())
        elif self._close_stdin_after:
            self._close_stdin()
        else:
            self._loop.unwatch(fd)

    def _close_stdin(self) -> None:
        if self._stdin is not None and not self._tty:
            self._loop.unwatch(self._stdin)
            os.close(self._stdin)
            self._stdin = None


def outcome(command: Command) -> dict[str, Any]:
    """How it stands, without the output."""
    return {
        "state": command.state,
        "session": command.session,
        "exit_code": command.exit_code,
        "killed": command.killed,
    }
