"""A terminal in the sandbox: the UI steps aside, and keys and output go through messages.

The output of a shell is for a terminal, so its colours and cursor movements pass. Strings that
command the terminal itself (titles, the clipboard, notifications, device control) do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

from sandstream_bus.environment import variable
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import Exec, Executed, Interact, Kill, LiveOutput

from sandstream._inspect.live_output import heard
from sandstream.exceptions import UserError
from sandstream.tui.conversation.box import Box

DETACH = b"\x1d"
"""Ctrl+] ends the terminal, as in telnet."""
_POLL_S = 3600.0
_BEGIN = rb"(?:\x1b[\]PX^_]|\xc2[\x90\x98\x9d-\x9f])"
"""OSC, DCS, SOS, PM and APC, with an escape or as a control character in UTF-8."""
_TEXT = rb"[^\x07\x18\x1a\x1b]*?"
_END = rb"(?:\x07|\x18|\x1a|\xc2\x9c|\x1b\\|(?=\x1b[^\\])|(?P<open>\x1b?\Z))"
"""Many terminals do what a string says even if another sequence ends it."""
_STRINGS = re.compile(rb"(?<![\x1b\xc2])(?:[\x1b\xc2]*(?P<last>" + _BEGIN + _TEXT + _END + rb"))+")
"""With the escapes before them, which could begin another one with what follows."""
_HALF = re.compile(rb"(?<![\x1b\xc2])[\x1b\xc2]+\Z")
_MOST_KEPT = 4096
_MARK = "_SANDSTREAM_TERMINAL"
"""No setting: a command finds the shell of a terminal by this variable, to resize the terminal."""


class TerminalFilter:
    """Removes the strings that command a terminal, also where a piece of output ends within one."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """The part of the output that may be written now."""
        data, self._rest = self._rest + data, b""
        data = _STRINGS.sub(self._dropped, data)
        if found := _HALF.search(data):
            data, self._rest = data[: found.start()], found[0][-_MOST_KEPT:]
        return data

    def _dropped(self, strings: re.Match[bytes]) -> bytes:
        if strings["open"] is not None:
            whole = strings["last"]
            self._rest = whole[:_MOST_KEPT] + whole[_MOST_KEPT:][-1:]  # perhaps half of its end
        return b""


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed already stays
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def attach(box: Box) -> int | None:
    """Connect this process's terminal to a new shell in the sandbox, until the shell ends.

    Args:
        box: The sandbox.

    Returns:
        The exit code of the shell; None: the person left with Ctrl+].

    Raises:
        UserError: The sandbox was closed meanwhile.
    """
    return await _Attached(box).hold()


class _Attached:
    """Keys to a shell in the sandbox, and its output back."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._op = new_op()
        """The operation that starts the shell."""
        self._poll = new_op()
        """The operation that waits for its end; its output is live."""
        self._shown = 0
        self._written = TerminalFilter()
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._left = asyncio.Event()
        self._resized = asyncio.Event()

    async def hold(self) -> int | None:
        """The exit code of the shell; None: the person left."""
        with _raw(sys.stdin.fileno()), self._listening():
            shell = asyncio.ensure_future(self._shell())
            left = asyncio.ensure_future(self._left.wait())
            try:
                await asyncio.wait({shell, left}, return_when=asyncio.FIRST_COMPLETED)
                if shell.done():
                    return shell.result()
                await self._box.tell(Kill(op=self._op))
                return None
            finally:
                await _cancelled(shell, left)

    async def _shell(self) -> int | None:
        size = shutil.get_terminal_size()
        start = (
            f"stty rows {size.lines} cols {size.columns} 2>/dev/null; "
            "exec $(command -v bash || command -v sh) -i"
        )
        action = Exec(
            argv=["/bin/sh", "-c", start],
            env={"TERM": variable("TERM", "xterm"), _MARK: self._op},
            tty=True,
            keep_stdin=True,
            wait_s=0.1,
        )
        begun = await self._box.ask(action, Executed, op=self._op)
        _write(self._written.take(begun.stdout))
        if begun.state != "running":
            return _exit_code(begun)
        end = Interact(session=begun.session, wait_s=_POLL_S)
        async with heard(self._box.client.bus, self._box.id, self._take):
            ended = asyncio.ensure_future(self._box.ask(end, Executed, op=self._poll))
            keys = asyncio.ensure_future(self._type(begun.session))
            sizes = asyncio.ensure_future(self._resize())
            try:
                await asyncio.wait({ended, keys, sizes}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    for it in (keys, sizes):
                        if it.done():
                            it.result()  # raises what went wrong
                done = await ended
                _write(self._written.take(done.stdout[self._shown :]))
                return _exit_code(done)
            finally:
                await _cancelled(ended, keys, sizes)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Read keys, and notice a new size. No request of ours can keep a person from leaving."""
        loop = asyncio.get_running_loop()
        descriptor = sys.stdin.fileno()

        def read() -> None:
            data = os.read(descriptor, 4096)
            if not data or DETACH in data:
                self._left.set()
            else:
                self._typed.put_nowait(data)

        before = signal.getsignal(signal.SIGWINCH)
        loop.add_reader(descriptor, read)
        loop.add_signal_handler(signal.SIGWINCH, self._resized.set)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            loop.remove_signal_handler(signal.SIGWINCH)
            signal.signal(signal.SIGWINCH, before)

    def _take(self, piece: LiveOutput) -> None:
        if piece.call == self._poll and piece.offset + len(piece.data) > self._shown:
            data = piece.data[max(0, self._shown - piece.offset) :]
            self._shown = piece.offset + len(piece.data)
            _write(self._written.take(data))

    async def _type(self, session: int) -> None:
        """Send keys in order, those that come meanwhile together."""
        while True:
            data = await self._typed.get()
            while not self._typed.empty():
                data += self._typed.get_nowait()
            await self._box.ask(Interact(session=session, data=data, wait_s=0.0), Executed)

    async def _resize(self) -> None:
        """Tell the shell's terminal each new size of ours."""
        while True:
            await self._resized.wait()
            self._resized.clear()
            size = shutil.get_terminal_size()
            command = (
                f"for it in /proc/[0-9]*; do if tr '\\0' '\\n' <$it/environ 2>/dev/null | "
                f"grep -qx {_MARK}={self._op}; then "
                f"stty rows {size.lines} cols {size.columns} <$it/fd/0 && break; fi; done"
            )
            await self._box.ask(Exec(argv=["/bin/sh", "-c", command], timeout_s=10), Executed)


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    for it in tasks:
        it.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _exit_code(done: Executed) -> int | None:
    """How the shell ended.

    Raises:
        UserError: Its sandbox was closed.
    """
    if done.state == "lost":
        raise UserError(
            "the sandbox was closed while the terminal was open: the session was paused, moved, "
            "rewound or destroyed meanwhile, or its box was lost"
        )
    return done.exit_code


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
