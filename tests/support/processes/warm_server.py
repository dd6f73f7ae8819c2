"""An interpreter with the usual packages loaded, which forks programs from itself.

``warm_python.py`` starts it with one end of a socket pair. Each order says what to run; it
comes with the program's standard streams and a socket that reports its pid and later its exit code.
Modules that are loaded beforehand do not read the environment, except one (``ENVIRONED``), which is
reloaded. This file needs only the standard library, because it may run in another environment.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import json
import os
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import warnings
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
NUMBER = struct.Struct("<i")
HEARD = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONWARNINGS")
"""Variables that an interpreter reads at its start; here ``become`` applies them."""
ENVIRONED = "sandstream_bus.crashpoints"
BIGGEST_ORDER = 128 * 1024


class Order(NamedTuple):
    """``python program arguments...``, or ``python -m module arguments...``."""

    program: str
    arguments: list[str]
    env: dict[str, str]
    directory: str
    is_module: bool = False
    own_session: bool = False


def serve(control: int) -> Order | None:
    """Fork for each order. Returns the order in the fork, and ``None`` when the client is gone."""
    orders = socket.socket(fileno=control)
    events = select.poll()
    events.register(control, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}
    server = os.getpid()
    while True:
        for ready, _ in events.poll():
            if ready == control:
                said, fds, _, _ = socket.recv_fds(orders, BIGGEST_ORDER, 4)
                if not said:
                    return None
                if (pid := os.fork()) == 0:
                    _end_with(server)
                    orders.detach()
                    _take_over(fds[:3])
                    return Order(*json.loads(said))
                *streams, report = fds
                for stream in streams:
                    os.close(stream)
                _tell(report, pid)
                watch = os.pidfd_open(pid)
                running[watch] = pid, report
                events.register(watch, select.POLLIN)
            else:
                pid, report = running.pop(ready)
                events.unregister(ready)
                os.close(ready)
                _tell(report, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(report)


def _end_with(server: int) -> None:
    """End the program with the server, which ends with the process that started it: a killed test
    suite cannot end its programs.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os.kill(os.getpid(), signal.SIGKILL)


def _tell(report: int, number: int) -> None:
    try:
        os.write(report, NUMBER.pack(number))
    except BrokenPipeError:
        return  # who started it does not want to know


def _take_over(streams: list[int]) -> None:
    """Use the given streams, and close everything else of the server."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for file in (sys.stdout, sys.stderr):
        assert isinstance(file, io.TextIOWrapper)
        file.reconfigure(line_buffering=os.isatty(file.fileno()) or file is sys.stderr)


def become(order: Order) -> None:
    """Run the program to its end, as the main module of this process."""
    if order.own_session:
        os.setsid()
    os.chdir(order.directory)
    unheard = {name for name in order.env if name.startswith("PYTHON")} - set(HEARD)
    assert not unheard, f"only an interpreter that begins reads {unheard}: start one"
    os.environ.clear()
    os.environ.update(order.env)
    sys.dont_write_bytecode = bool(order.env.get("PYTHONDONTWRITEBYTECODE"))
    if ENVIRONED in sys.modules:
        importlib.reload(sys.modules[ENVIRONED])
    if action := order.env.get("PYTHONWARNINGS"):
        assert action == "error", action
        warnings.simplefilter("error")
    sys.argv = [order.program, *order.arguments]
    more = [path for path in order.env.get("PYTHONPATH", "").split(os.pathsep) if path]
    first = order.directory if order.is_module else str(Path(order.program).parent)
    sys.path[:1] = [first, *more]
    if order.is_module:
        runpy.run_module(order.program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(order.program, run_name="__main__")


def main(control: int, libraries: list[str]) -> None:
    for name in libraries:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork would lose the other threads"
    gc.freeze()
    if order := serve(control):
        become(order)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
