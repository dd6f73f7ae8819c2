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
import sys
import termios
import tty
from collections.abc import Iterator

from sandstream_bus.environment import variable
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import Exec, Executed, Interact, Kill, LiveOutput

from sandstream._inspect.live_output import heard
from sandstream.tui.conversation.box import Box

DETACH = b"\x1d"
"""Ctrl+] ends the terminal, as in telnet."""
_POLL_S = 3600.0
_BEGIN = rb"(?:\x1b[\]PX^_]|\xc2[\x90\x98\x9d-\x9f])"
"""OSC, DCS, SOS, PM and APC, with an escape or as a control character in UTF-8."""
_STRING = re.compile(_BEGIN + rb"[^\x07\x1b]*(?:\x07|\x1b\\|\xc2\x9c)")
_OPEN_STRING = re.compile(rb"(?:" + _BEGIN + rb"[^\x07\x1b]*\x1b?|\x1b|\xc2)\Z")
_MOST_KEPT = 4096


class TerminalFilter:
    """Removes the strings that command a terminal, also where a piece of output ends within one."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """The part of the output that may be written now."""
        data = _STRING.sub(b"", self._rest + data)
        self._rest = b""
        if found := _OPEN_STRING.search(data):
            data, self._rest = data[: found.start()], data[found.start() :][:_MOST_KEPT]
        return data


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
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
    """
    size = shutil.get_terminal_size()
    start = (
        f"stty rows {size.lines} cols {size.columns} 2>/dev/null; "
        "exec $(command -v bash || command -v sh) -i"
    )
    op = new_op()
    term = variable("TERM", "xterm")
    action = Exec(
        argv=["/bin/sh", "-c", start],
        env={"TERM": term},
        tty=True,
        keep_stdin=True,
        wait_s=0.1,
    )
    written = TerminalFilter()
    begun = await box.ask(action, Executed, op=op)
    _write(written.take(begun.stdout))
    if begun.state != "running":
        return begun.exit_code
    return await _converse(box, begun.session, op, written)


async def _converse(box: Box, session: int, op: str, written: TerminalFilter) -> int | None:
    poll = new_op()
    shown = 0

    def take(piece: LiveOutput) -> None:
        nonlocal shown
        if piece.call == poll and piece.offset + len(piece.data) > shown:
            data = piece.data[max(0, shown - piece.offset) :]
            shown = piece.offset + len(piece.data)
            _write(written.take(data))

    typed: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    async with heard(box.client.bus, box.id, take):
        with _raw(descriptor):
            loop.add_reader(descriptor, lambda: typed.put_nowait(os.read(descriptor, 4096)))
            end = Interact(session=session, wait_s=_POLL_S)
            ended = asyncio.ensure_future(box.ask(end, Executed, op=poll))
            keys = asyncio.ensure_future(_type(box, session, typed))
            try:
                await asyncio.wait({ended, keys}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    done = ended.result()
                    _write(written.take(done.stdout[shown:]))
                    return done.exit_code
                keys.result()  # raises what went wrong
                await box.tell(Kill(op=op))
                return None
            finally:
                loop.remove_reader(descriptor)
                for task in (ended, keys):
                    task.cancel()
                await asyncio.gather(ended, keys, return_exceptions=True)


async def _type(box: Box, session: int, typed: asyncio.Queue[bytes]) -> None:
    """Send keys in order, those that come meanwhile together; return when the person leaves."""
    while True:
        data = await typed.get()
        while not typed.empty():
            data += typed.get_nowait()
        if not data or DETACH in data:
            return
        await box.ask(Interact(session=session, data=data, wait_s=0.0), Executed)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]
