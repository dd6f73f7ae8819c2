"""A process that a client started, from its start to the event that says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable
from typing import Any

from vendors.e2b.output import Event, InputPipe, OutputPipe, Publisher
from vendors.machine import Process

_PIPE_CHUNK_BYTES = 32 << 10
_TERMINAL_CHUNK_BYTES = 16 << 10
_SIGNAL_NAMES = {
    signal.SIGKILL: "killed",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hangup",
    signal.SIGINT: "interrupt",
    signal.SIGQUIT: "quit",
    signal.SIGABRT: "aborted",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "floating point exception",
    signal.SIGILL: "illegal instruction",
    signal.SIGPIPE: "broken pipe",
    signal.SIGALRM: "alarm clock",
}


class NoInput(Exception):
    """The process cannot take this input; the text is the vendor's."""


class BoxProcess:
    """One entry of the table of processes.

    Its end is announced when the process has ended *and* every holder of its output has closed it,
    except after a signal or its deadline: then only the process itself is waited for. A signal and
    the deadline reach the process alone, not its children.
    """

    def __init__(
        self,
        process: Process,
        *,
        config: dict[str, Any],
        tag: str | None,
        stdin: int | None,
        outputs: dict[str, int],
    ) -> None:
        self.pid = process.pid
        self.config = config
        self.tag = tag
        self.publisher = Publisher()
        self._process = process
        self._terminal: InputPipe | None = None
        self._stdin = None if stdin is None else InputPipe(stdin)
        self._pipes = [OutputPipe(kind, fd, _PIPE_CHUNK_BYTES) for kind, fd in outputs.items()]
        if process.terminal is not None:
            self._terminal = InputPipe(os.dup(process.terminal))
            self._pipes = [OutputPipe("pty", process.terminal, _TERMINAL_CHUNK_BYTES)]
        self._outputs_left = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._remaining_s: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, timeout_s: float | None, on_end: Callable[[BoxProcess, Event], None]) -> None:
        """Read its output and wait for its end; kill it after ``timeout_s``."""
        self._remaining_s = timeout_s
        self.go_on()
        self._run(self._watch(on_end))

    def hold(self) -> None:
        """The box is paused: its clock stands still, so the deadline waits too."""
        if self._deadline is not None:
            loop = asyncio.get_running_loop()
            self._remaining_s = max(0.0, self._deadline.when() - loop.time())
            self._deadline.cancel()
            self._deadline = None

    def go_on(self) -> None:
        if self._remaining_s is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._remaining_s, self._expire)

    async def send_signal(self, number: int) -> None:
        self._outputs_left.set()
        await self._process.signal(number)

    async def write_stdin(self, data: bytes) -> None:
        if self._terminal is not None:
            raise NoInput(
                "tty assigned to process — input should be written to the pty, not the stdin"
            )
        if self._stdin is None:
            raise NoInput("stdin not enabled or closed")
        try:
            await self._stdin.write(data)
        except OSError:
            raise NoInput(
                f"error writing to stdin of process '{self.pid}': write |1: broken pipe"
            ) from None

    async def write_terminal(self, data: bytes) -> None:
        if self._terminal is None:
            raise NoInput(
                "tty not assigned to process — input should be written to the stdin, not the tty"
            )
        try:
            await self._terminal.write(data)
        except OSError as error:
            raise NoInput(f"error writing to tty of process '{self.pid}': {error}") from None

    def close_stdin(self) -> None:
        if self._terminal is not None:
            raise NoInput("cannot close stdin for PTY process — send Ctrl+D (0x04) instead")
        if self._stdin is not None:
            self._stdin.close()
            self._stdin = None

    def resize(self, rows: int, columns: int) -> None:
        if self._terminal is None:
            raise NoInput("tty not assigned to process")
        size = struct.pack("HHHH", rows & 0xFFFF, columns & 0xFFFF, 0, 0)
        fcntl.ioctl(self._terminal.fd, termios.TIOCSWINSZ, size)

    def _expire(self) -> None:
        self._deadline = None
        self._remaining_s = None
        self._run(self.send_signal(signal.SIGKILL))

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, on_end: Callable[[BoxProcess, Event], None]) -> None:
        outputs = asyncio.create_task(self._forward_all())
        left = asyncio.create_task(self._leave_outputs())
        await asyncio.wait({outputs, left}, return_when=asyncio.FIRST_COMPLETED)
        code = await self._process.wait()
        for task in (outputs, left):
            task.cancel()
        await asyncio.wait({outputs, left})
        self._close()
        event = _end_event(code)
        on_end(self, event)
        await self.publisher.publish(event)
        await self.publisher.publish(None)

    async def _leave_outputs(self) -> None:
        await self._outputs_left.wait()

    async def _forward_all(self) -> None:
        await asyncio.gather(*(self._forward(pipe) for pipe in self._pipes))

    async def _forward(self, pipe: OutputPipe) -> None:
        async with contextlib.aclosing(pipe.events()) as events:
            async for event in events:
                await self.publisher.publish(event)

    def _close(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        for pipe in self._pipes:
            pipe.close()
        for written in (self._stdin, self._terminal):
            if written is not None:
                written.close()
        self._stdin = None


def _end_event(code: int) -> Event:
    """As the vendor's encoder writes it, which leaves out fields that are zero or false."""
    if code < 0:
        name = _SIGNAL_NAMES.get(signal.Signals(-code), f"signal {-code}")
        status = f"signal: {name}"
        return {"end": {"exitCode": -1, "status": status, "error": status}}
    end: dict[str, Any] = {"exited": True, "status": f"exit status {code}"}
    if code:
        end |= {"exitCode": code, "error": f"exit status {code}"}
    return {"end": end}
