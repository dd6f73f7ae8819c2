"""Start Python programs as separate processes in a tenth of the usual time.

Most of a start is spent on imports. A program started here is forked from an interpreter that has
already done them (``warm_server.py``). From then on it is a process like any other, with its own
pid, environment, streams and exit code. Tests of the start itself use ``subprocess``.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from support.processes.warm_server import NUMBER, Order

SERVER = Path(__file__).with_name("warm_server.py")
LIBRARIES = (
    "aiosqlite",
    "nats.js",
    "openai._base_client",
    "opentelemetry.sdk.trace",
    "pydantic",
    "uvloop",
    "sandstream.client",
    "sandstream._surface.connection",
    "sandstream.models.defaults",
    "sandstream._run.sandbox_host",
    "sandstream.worker",
    "sandstream_actors.harness.actor",
    "sandstream_actors.sandbox.actor",
)
START_S = 30.0


class WarmProcess:
    """One process. Its starter ends and closes it."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self._code: int | None = None
        self.pid = self._number(START_S) or 0
        assert self.pid, "the server of warm interpreters did not fork"

    def poll(self) -> int | None:
        """Its exit code, or the negative signal number; ``None`` while it runs."""
        return self.wait(0.0)

    def wait(self, timeout: float) -> int | None:
        """Like ``poll``, but wait for at most ``timeout`` seconds."""
        if self._code is None:
            self._code = self._number(timeout)
        return self._code

    def send_signal(self, which: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, which)

    def kill(self) -> None:
        """kill -9"""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        self._report.close()

    def _number(self, within_s: float) -> int | None:
        if self._report.fileno() < 0:
            return None
        answers = select.poll()
        answers.register(self._report, select.POLLIN)
        if not answers.poll(within_s * 1000):
            return None
        (number,) = NUMBER.unpack(self._report.recv(NUMBER.size))
        return int(number)


def start(
    order: Order,
    stdin: int | None,
    stdout: int,
    stderr: int,
    *,
    python: str = sys.executable,
    libraries: tuple[str, ...] = LIBRARIES,
) -> WarmProcess:
    """Start a program with these streams; the caller owns and closes them."""
    report, told = socket.socketpair()
    with told, Path(os.devnull).open("rb") as nothing:
        read = nothing.fileno() if stdin is None else stdin
        fds = [read, stdout, stderr, told.fileno()]
        socket.send_fds(_server(python, libraries), [json.dumps(order).encode()], fds)
    return WarmProcess(report)


def run(
    order: Order,
    *,
    given: str = "",
    within_s: float,
    python: str = sys.executable,
    libraries: tuple[str, ...] = LIBRARIES,
) -> subprocess.CompletedProcess[str]:
    """Run to the end, like ``subprocess.run`` with captured output."""
    with TemporaryFile() as read, TemporaryFile() as out, TemporaryFile() as err:
        read.write(given.encode())
        read.seek(0)
        streams = (it.fileno() for it in (read, out, err))
        process = start(order, *streams, python=python, libraries=libraries)
        try:
            code = process.wait(within_s)
        finally:
            process.kill()
            process.wait(within_s)
            process.close()
        said = [_text(it) for it in (out, err)]
    if code is None:
        raise subprocess.TimeoutExpired([order.program, *order.arguments], within_s, *said)
    return subprocess.CompletedProcess([order.program, *order.arguments], code, *said)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@functools.cache
def _server(python: str, libraries: tuple[str, ...]) -> socket.socket:
    """One server for all tests of this process; it ends with this process."""
    control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [python, str(SERVER), str(its.fileno()), *libraries],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end, control, process)
    return control


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.wait()
