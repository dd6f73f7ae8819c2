"""Python programs as processes of their own which start in a tenth of the time.

Most of what a start costs is the import of other people's packages. A program that is started here
is forked from an interpreter that has them already (``support.warm_server``); from then on it is a
process like any other: its own pid, environment, streams and end.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
from support.warm_server import NUMBER, Order

SERVER = Path(__file__).with_name("warm_server.py")
START_S = 30.0


class WarmProcess:
    """One process. Whoever started it ends it, and closes it."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self._code: int | None = None
        self.pid = self._number(START_S) or 0
        assert self.pid, "the server of warm interpreters did not fork"

    def poll(self) -> int | None:
        """Its exit code, minus the signal if one ended it; None while it runs."""
        return self.wait(0.0)

    def wait(self, timeout: float) -> int | None:
        """The same, after as many seconds if need be."""
        if self._code is None:
            self._code = self._number(timeout)
        return self._code

    def send_signal(self, which: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, which)

    def close(self) -> None:
        self._report.close()

    def _number(self, within_s: float) -> int | None:
        if self._report.fileno() < 0:
            return None
        ready, _, _ = select.select([self._report], [], [], within_s)
        if not ready:
            return None
        (number,) = NUMBER.unpack(self._report.recv(NUMBER.size))
        return int(number)


def start(order: Order, stdin: int | None, stdout: int, stderr: int) -> WarmProcess:
    """Start a program with these streams, which the caller keeps and closes."""
    report, told = socket.socketpair()
    with told, Path(os.devnull).open("rb") as nothing:
        read = nothing.fileno() if stdin is None else stdin
        fds = [read, stdout, stderr, told.fileno()]
        socket.send_fds(_server(), [msgspec.json.encode(order)], fds)
    return WarmProcess(report)


@functools.cache
def _server() -> socket.socket:
    """One for all tests of this process; it ends when this process does."""
    control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(its.fileno())],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end, control, process)
    return control


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    process.wait()
