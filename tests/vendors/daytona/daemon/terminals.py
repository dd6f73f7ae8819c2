"""Terminals: interactive shells behind websockets. Clients see what is written while they are
connected, and nothing from before.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import struct
import termios
import time
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web
from vendors.daytona.daemon import pipes
from vendors.daytona.daemon.kills import signal_tree
from vendors.daytona.refusals import Refusal, now
from vendors.exchange import ConnectionEnds, Exchange
from vendors.machine import SpawnFailed

if TYPE_CHECKING:
    from vendors.daytona.daemon.daemon import Daemon
    from vendors.machine import Process

EXIT_CONTROL = "X-Daytona-Pty-Exit-Control"
LARGEST_INPUT = 64 * 1024
LARGEST_SIZE = 1000
PENDING_CHUNKS = 256
REASONS = {130: "Ctrl+C", 137: "SIGKILL", 143: "SIGTERM"}


class Terminal:
    """One shell with a terminal, and the clients that watch it."""

    def __init__(
        self, id_: str, cwd: str, env: dict[str, str], cols: int, rows: int, *, lazy: bool
    ) -> None:
        self.id = id_
        self.cwd = cwd
        self.env = {"TERM": "xterm-256color", **env}
        self.cols = cols
        self.rows = rows
        self.lazy = lazy
        self.created_at = time.time()
        self.process: Process | None = None
        self.over = asyncio.Event()
        self.exit_code = 0
        self._clients: set[asyncio.Queue[bytes]] = set()
        self._reading = False

    @property
    def active(self) -> bool:
        return self.process is not None and not self.over.is_set()

    def described(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "cwd": self.cwd,
            "envs": self.env,
            "cols": self.cols,
            "rows": self.rows,
            "createdAt": now(self.created_at),
            "active": self.active,
            "lazyStart": self.lazy,
        }

    async def start(self, daemon: Daemon) -> None:
        """Start the shell. Its output waits in the terminal until ``read`` is called."""
        self.process = await daemon.spawn(
            [daemon.shell, "-i", "-l"], cwd=self.cwd, env=self.env, terminal=(self.rows, self.cols)
        )
        assert self.process.terminal is not None
        os.set_blocking(self.process.terminal, False)

    def read(self) -> None:
        """Read the output, unless a client has not taken what was read before."""
        if not self._reading and self.active and not any(it.full() for it in self._clients):
            self._reading = True
            asyncio.get_running_loop().add_reader(self._fd, self._take)

    def resize(self, cols: int, rows: int) -> None:
        self.cols, self.rows = cols, rows
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def write(self, data: bytes) -> None:
        """Type something."""
        while data and self.active:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                await asyncio.sleep(0.005)

    async def watch(self) -> None:
        """Wait for the end of the shell, and pass on its last output."""
        assert self.process is not None
        code = await self.process.wait()
        self._stop_reading()
        while self._take():
            while any(chunks.full() for chunks in self._clients):
                await asyncio.sleep(0.005)
        self.exit_code = pipes.exit_status(code)
        self._stop_reading()
        self.over.set()
        os.close(self._fd)

    def exit_data(self) -> dict[str, Any]:
        found: dict[str, Any] = {"exitCode": self.exit_code}
        if self.exit_code:
            signalled = f"signal {self.exit_code - 128}" if self.exit_code > 128 else None
            found["exitReason"] = REASONS.get(self.exit_code) or signalled or "non-zero exit"
        return found

    @contextlib.contextmanager
    def client(self) -> Any:
        """Register a client. It gets everything that is read from here on."""
        chunks: asyncio.Queue[bytes] = asyncio.Queue(PENDING_CHUNKS)
        self._clients.add(chunks)
        try:
            yield chunks
        finally:
            self._clients.discard(chunks)
            self.read()

    @property
    def _fd(self) -> int:
        assert self.process is not None and self.process.terminal is not None
        return self.process.terminal

    def _take(self) -> bool:
        try:
            chunk = os.read(self._fd, 32 * 1024)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            chunk = b""
        if not chunk:
            self._stop_reading()
            return False
        for chunks in self._clients:
            if not chunks.full():
                chunks.put_nowait(chunk)
        if any(chunks.full() for chunks in self._clients):
            self._stop_reading()
        return True

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._fd)


class Terminals:
    """All terminals of a running box."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._tasks: set[asyncio.Task[None]] = set()
        self.all: dict[str, Terminal] = {}

    async def create(
        self, id_: str, cwd: str | None, env: dict[str, str], cols: int, rows: int, *, lazy: bool
    ) -> Terminal:
        """Make a terminal; a lazy one starts with its first client.

        Raises:
            Refusal: there is one with this id (409), or it cannot be started (500).
        """
        if not id_:
            raise Refusal(400, "session ID is required")
        if id_ in self.all:
            raise Refusal(409, f"PTY session with ID '{id_}' already exists")
        check_size(cols, rows)
        terminal = Terminal(id_, cwd or self._daemon.work_dir, env, cols, rows, lazy=lazy)
        self.all[id_] = terminal
        if not lazy:
            await self.start(terminal)
        return terminal

    async def start(self, terminal: Terminal) -> None:
        try:
            await terminal.start(self._daemon)
        except SpawnFailed:
            self.all.pop(terminal.id, None)
            raise Refusal(500, "failed to start PTY session") from None
        task = asyncio.create_task(self._watch(terminal))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def get(self, id_: str) -> Terminal:
        if found := self.all.get(id_):
            return found
        raise Refusal(404, "PTY session not found")

    async def delete(self, id_: str) -> None:
        """Kill the shell and everything that it started."""
        terminal = self.get(id_)
        del self.all[id_]
        if terminal.process is not None and not terminal.over.is_set():
            await signal_tree(self._daemon, terminal.process.pid, "KILL")
            await terminal.over.wait()

    async def attach(self, request: web.Request, terminal: Terminal) -> web.StreamResponse:
        """Serve one client until it leaves or the shell ends."""
        socket = web.WebSocketResponse(protocols=[EXIT_CONTROL], max_msg_size=LARGEST_INPUT)
        await socket.prepare(request)
        exchange = Exchange.of(request)

        async def send(message: str | bytes) -> None:
            if isinstance(message, str):
                await socket.send_str(message)
            else:
                await socket.send_bytes(message)

        outgoing = exchange.outgoing(send)

        async def show(chunks: asyncio.Queue[bytes]) -> None:
            while not (terminal.over.is_set() and chunks.empty()):
                getting = asyncio.ensure_future(chunks.get())
                ending = asyncio.ensure_future(terminal.over.wait())
                try:
                    await asyncio.wait({getting, ending}, return_when=asyncio.FIRST_COMPLETED)
                finally:  # also if the client left
                    has_come = getting.done()
                    for waiting in (getting, ending):
                        waiting.cancel()
                if has_come:
                    await outgoing.send(getting.result())
                    terminal.read()
            exited = terminal.exit_data()
            if socket.ws_protocol == EXIT_CONTROL:
                control = {"type": "control", "status": "exited", **exited}
                await outgoing.send(json.dumps(control))
            await outgoing.finish()
            code = 1000 if terminal.exit_code == 0 else 1011
            await socket.close(code=code, message=json.dumps(exited).encode())

        with terminal.client() as chunks:
            await outgoing.send(json.dumps({"type": "control", "status": "connected"}))
            terminal.read()
            showing = asyncio.create_task(show(chunks))
            try:
                async for message in exchange.incoming(socket):
                    if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                        data = message.data
                        await terminal.write(data if isinstance(data, bytes) else data.encode())
                if terminal.over.is_set():
                    await showing
            finally:
                showing.cancel()
                with contextlib.suppress(
                    asyncio.CancelledError, ConnectionEnds, ConnectionError, RuntimeError
                ):
                    await showing
        return socket

    async def refuse(self, request: web.Request, reason: str) -> web.StreamResponse:
        """Tell a client why it cannot be attached: only after the upgrade, in a control message."""
        socket = web.WebSocketResponse(protocols=[EXIT_CONTROL])
        await socket.prepare(request)
        error = f"Failed to connect to PTY session: {reason}"
        await socket.send_str(json.dumps({"type": "control", "status": "error", "error": error}))
        await socket.close()
        return socket

    async def close(self) -> None:
        for task in list(self._tasks):
            await asyncio.wait({task})

    async def _watch(self, terminal: Terminal) -> None:
        await terminal.watch()
        if self.all.get(terminal.id) is terminal:
            del self.all[terminal.id]


def check_size(cols: int, rows: int) -> None:
    for name, value in (("cols", cols), ("rows", rows)):
        if not 1 <= value <= LARGEST_SIZE:
            raise Refusal(400, f"invalid value for {name} - must be less than 1000")
