"""Processes of this machine: start one that outlives us, recognise it later, stop it, end it.

The system reuses pids. A pid together with its start time and the machine's boot id identifies one
process for ever. Boxes are started with ``posix_spawn``: its cost does not grow with the size of
this process, and no object here ends the box when it is collected, as objects of asyncio and
subprocess would.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

LINUX = sys.platform == "linux"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_ENV = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
"""The environment of programs that must not see this process's environment."""
FIRST_FD = 3
_HIGH_FD = 200
"""Copies made for a child are numbered from here, so that no target number is a source too."""

_SAID_BYTES = 64 * 1024
"""A program may say any amount; of one that fails, the end matters."""


class ProcessMark(msgspec.Struct, frozen=True, kw_only=True):
    """One process, never another with its pid."""

    pid: int
    started: str
    boot: str


class ChildFds:
    """File descriptors for a child, under numbers known before it starts. Closes them after."""

    def __init__(self) -> None:
        self._copies: list[int] = []

    def __enter__(self) -> ChildFds:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._copies:
            os.close(fd)
        self._copies.clear()

    def add(self, fd: int) -> int:
        """Hand on a copy; the caller keeps its own. Returns the number that the child sees."""
        self._copies.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD))
        return FIRST_FD + len(self._copies) - 1

    def add_socket(self, listener: socket.socket) -> int:
        return self.add(listener.fileno())

    def add_data(self, data: bytes) -> int:
        """A file in memory that the child reads from its start."""
        fd = os.memfd_create("sandstream")
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
            os.lseek(fd, 0, os.SEEK_SET)
            return self.add(fd)
        finally:
            os.close(fd)

    def actions(self) -> Iterator[tuple[int, int, int]]:
        for number, fd in enumerate(self._copies, FIRST_FD):
            yield (os.POSIX_SPAWN_DUP2, fd, number)


def spawn_detached(
    argv: list[str], env: Mapping[str, str], fds: ChildFds, log: Path
) -> ProcessMark:
    """Start a process in its own session that outlives this one; its output goes to the log."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = _spawn(argv, env, fds, output)
    finally:
        os.close(output)
    found = mark(pid)
    if found is None:
        _reap(pid)
        raise ProcessLookupError(f"{argv[0]} ended before it began")
    return found


async def run_once(
    argv: list[str], env: Mapping[str, str], fds: ChildFds, *, timeout_s: float
) -> tuple[int, str]:
    """Run to the end. Returns the exit code (minus the fatal signal) and the last output."""
    with tempfile.TemporaryFile() as log:
        pid = _spawn(argv, env, fds, log.fileno())
        end = asyncio.ensure_future(asyncio.to_thread(os.waitpid, pid, 0))
        try:
            await asyncio.wait([end], timeout=timeout_s)
        finally:
            if not end.done():
                with contextlib.suppress(ProcessLookupError):  # it may have ended this very moment
                    os.killpg(pid, signal.SIGKILL)
        _, status = await end
        log.seek(max(0, log.seek(0, os.SEEK_END) - _SAID_BYTES))
        return os.waitstatus_to_exitcode(status), log.read().decode(errors="replace")


def _spawn(argv: list[str], env: Mapping[str, str], fds: ChildFds, output: int) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        actions: list[tuple[int, ...]] = [
            (os.POSIX_SPAWN_DUP2, nothing, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
            *fds.actions(),
        ]
        given = {action[2] for action in actions}
        actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited() if fd not in given]
        # search the PATH of the new process, not the PATH of this one
        program = shutil.which(argv[0], path=env.get("PATH")) or argv[0]
        if LINUX:
            return os.posix_spawnp(program, argv, env, file_actions=actions, setsid=True)
        return os.posix_spawnp(program, argv, env, file_actions=actions, setpgroup=0)
    finally:
        os.close(nothing)


def _inherited() -> list[int]:
    """Descriptors that a child would inherit by accident: the parent of this process, or a library
    in it, may have left some open.
    """
    found = []
    for entry in Path("/proc/self/fd" if LINUX else "/dev/fd").iterdir():
        try:
            if os.get_inheritable(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue  # that of the listing itself
    return found


def boot_id() -> str:
    if LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def mark(pid: int) -> ProcessMark | None:
    """The process that has this pid now; None if it is gone or only waits to be reaped."""
    if LINUX:
        fields = _stat(pid)
        if fields is None or fields[0] in "ZX":
            return None
        return ProcessMark(pid=pid, started=fields[19], boot=boot_id())
    shown = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not shown or shown.startswith("Z"):
        return None
    return ProcessMark(pid=pid, started=shown.split(None, 1)[1], boot=boot_id())


def is_alive(process: ProcessMark | None) -> bool:
    if process is None:
        return False
    if mark(process.pid) == process:
        return True
    _reap(process.pid)
    return False


def send(process: ProcessMark | None, number: signal.Signals) -> None:
    """Signal this very process, if it is still there."""
    if process is None or not is_alive(process):
        return
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return


def descendants(pid: int) -> list[int]:
    """All that came from this process and still hang on it: in a pid namespace, all of it."""
    parents = _parents()
    found = [pid]
    for parent in found:
        found += [child for child, its in parents.items() if its == parent]
    return found[1:]


def command_line(pid: int) -> str:
    """As it was started; empty if it is gone."""
    if LINUX:
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    argv = ["ps", "-o", "command=", "-p", str(pid)]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def is_stopped(pid: int) -> bool:
    """Stopped by a signal; one that is gone counts as stopped."""
    fields = _stat(pid)
    return fields is None or fields[0] in "TtZX"


async def until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    """Wait until it is so; False if it did not come about in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pause_s = 0.002
    while not condition():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
    return True


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # started by another process, which reaps it


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on. The name before them may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _parents() -> dict[int, int]:
    if LINUX:
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return {pid: int(fields[1]) for pid in pids if (fields := _stat(pid)) is not None}
    shown = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    return {int(pid): int(parent) for pid, parent in (line.split() for line in shown.splitlines())}
