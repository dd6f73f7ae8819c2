"""Process 1 of a vendor box: starts processes on request, reaps them and reports how they ended.

A copy of this file is shown to the box, so it imports nothing of ours. It talks to
:mod:`vendors.machine` over a packet socket: each request is one JSON packet, and large parts
(arguments, environment) are read from a file descriptor that comes with it. The end of the socket
ends the box: when process 1 leaves, the kernel kills every other process of the namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
from typing import Any

_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_MOST_FDS = 4
_PACKET_BYTES = 65_536

_SUDO = "/run/sudo.sock"

_libc = ctypes.CDLL(None)
_alive: set[int] = set()
_callers: dict[socket.socket, int] = {}
"""Connections of ``sudo``, and the process of each; 0: it has not said yet what to start."""


def _become(task: dict[str, Any], fds: list[int], terminal: int | None) -> None:
    """In the child: everything between fork and exec. Raises if the box lacks what is asked."""
    for name in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    if task["group"] == "session" or terminal is not None:
        os.setsid()
    elif task["group"] == "own":
        os.setpgid(0, 0)
    if terminal is not None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        fds = [terminal, terminal, terminal]
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    if task["root"]:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    elif not task["privileged"]:
        _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.umask(0o022)
    os.chdir(task["cwd"])


def _spawn(task: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    master = slave = None
    if task["pty"] is not None:
        rows, columns = task["pty"]
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    failed_r, failed_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        stage = "cwd"
        try:
            _become(task, fds, slave)
            stage = "exec"
            os.execvpe(task["argv"][0], task["argv"], task["env"])
        except OSError as error:
            os.write(failed_w, json.dumps({"stage": stage, "errno": error.errno}).encode())
        finally:
            os._exit(127)
    os.close(failed_w)
    if slave is not None:
        os.close(slave)
    with os.fdopen(failed_r, "rb") as failed:
        problem = failed.read()
    if problem:
        os.waitpid(pid, 0)
        if master is not None:
            os.close(master)
        return {"failed": json.loads(problem)}, []
    _alive.add(pid)
    return {"pid": pid}, [] if master is None else [master]


def _signal(task: dict[str, Any]) -> dict[str, Any]:
    pid, number = task["pid"], task["signal"]
    try:
        if pid == -1:
            os.kill(-1, number)
        elif pid not in _alive:
            return {"delivered": False}
        elif task["whole_group"]:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return {"delivered": pid == -1}
    return {"delivered": True}


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in _alive:
            _alive.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            for caller in [it for it, started in _callers.items() if started == pid]:
                with contextlib.suppress(OSError):
                    caller.send(str(code).encode())
                _leave(caller)
                break
            else:
                control.send(json.dumps({"ended": pid, "code": code}).encode())


def _serve(control: socket.socket) -> None:
    packet, fds, _, _ = socket.recv_fds(control, _PACKET_BYTES, _MOST_FDS)
    if not packet:
        os._exit(0)
    for fd in fds:
        os.set_inheritable(fd, False)
    task = json.loads(packet)
    answered: list[int] = []
    if task["op"] == "spawn":
        with os.fdopen(fds.pop(0), "rb") as details:
            details.seek(0)
            task |= json.loads(details.read())
        answer, answered = _spawn(task, fds)
    else:
        answer = _signal(task)
    for fd in fds:
        os.close(fd)
    answer["id"] = task["id"]
    socket.send_fds(control, [json.dumps(answer).encode()], answered)
    for fd in answered:
        os.close(fd)


def _leave(caller: socket.socket) -> None:
    del _callers[caller]
    caller.close()


def _serve_sudo(caller: socket.socket) -> None:
    """Start what ``sudo`` was asked for as root. If ``sudo`` ends first, so does that."""
    try:
        packet, fds, _, _ = socket.recv_fds(caller, _PACKET_BYTES, _MOST_FDS)
    except OSError:
        packet, fds = b"", []
    if not packet:
        if pid := _callers[caller]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGHUP)
            _alive.discard(pid)  # it is reaped, and no one is told
        _leave(caller)
        return
    for fd in fds:
        os.set_inheritable(fd, False)
    with os.fdopen(fds.pop(0), "rb") as details:
        details.seek(0)
        task = json.loads(details.read())
    more = {"pty": None, "group": "session", "privileged": True, "root": _has_users()}
    answer, _ = _spawn(task | more, fds)
    for fd in fds:
        os.close(fd)
    if "failed" in answer:
        caller.send(b"127")
        _leave(caller)
    else:
        _callers[caller] = answer["pid"]


def _has_users() -> bool:
    with open("/proc/self/uid_map") as file:  # noqa: PTH123
        return len(file.readlines()) > 1


def _sudo_socket() -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_SUDO)  # noqa: PTH108
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(_SUDO)
    os.chmod(_SUDO, 0o777)  # noqa: PTH101
    listening.listen()
    return listening


def main(control_fd: int, *, sudo: bool) -> None:
    """Serve until the other side closes the socket."""
    with contextlib.suppress(PermissionError):
        os.setsid()  # "kill 0" in the box must not reach processes outside of it
    control = socket.socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)
    woken_r, woken_w = os.pipe()
    os.set_blocking(woken_r, False)
    os.set_blocking(woken_w, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken_w, warn_on_full_buffer=False)
    listening = _sudo_socket() if sudo else None
    control.send(b'{"ready": true}')
    while True:
        watched: list[Any] = [
            control_fd,
            woken_r,
            *_callers,
            *([] if listening is None else [listening]),
        ]
        ready, _, _ = select.select(watched, [], [])
        if woken_r in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken_r, 4096)
        if control_fd in ready:
            _serve(control)
        for caller in [it for it in _callers if it in ready]:
            _serve_sudo(caller)
        if listening is not None and listening in ready:
            _callers[listening.accept()[0]] = 0
        _reap(control)


if __name__ == "__main__":
    main(int(sys.argv[1]), sudo="sudo" in sys.argv[2:])
