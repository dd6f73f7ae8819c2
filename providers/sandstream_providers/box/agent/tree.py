"""Which processes belong to a command: by parent, group, session, and by a mark in their
environment, which stays when they detach themselves from all the others.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Iterable


PAGE = os.sysconf("SC_PAGE_SIZE")


class Process:
    """One line of the process table."""

    __slots__ = ("group", "parent", "pid", "resident", "session", "started")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.started = int(fields[19])
        self.resident = int(fields[21]) * PAGE


def read_process(pid: int) -> Process | None:
    """None if it is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read(4096)
    except OSError:
        return None
    fields = line[line.rfind(b")") + 2 :].split()
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, fields)


def table() -> list[Process]:
    """All processes that can be seen but this one."""
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            process = read_process(int(name))
            if process is not None:
                found.append(process)
    return found


def environment(pid: int) -> bytes:
    """Between zero bytes, also at both ends. Empty if it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            parts = []
            while True:
                part = file.read(65536)
                if not part:
                    break
                parts.append(part)
    except OSError:
        return b""
    return b"\0" + b"".join(parts) + b"\0"


def has_mark(pid: int, marks: Iterable[bytes]) -> bool:
    """Whether its environment holds all of these ``NAME=value``."""
    text = environment(pid)
    return all(b"\0" + mark + b"\0" in text for mark in marks)


def mark_of(pid: int, name: bytes, other: bytes) -> bytes | None:
    """The value of ``name`` in its environment, if that holds the other mark too."""
    text = environment(pid)
    _, found, rest = text.partition(b"\0" + name + b"=")
    if not found or b"\0" + other + b"\0" not in text:
        return None
    return rest.partition(b"\0")[0]


class Family:
    """One command's processes. Remembers those it has seen, since they may detach themselves."""

    def __init__(self, leader: int, marks: Iterable[bytes]) -> None:
        self.leader = leader
        self._marks = tuple(marks)
        self._seen: dict[int, int] = {}

    def members(self, processes: list[Process], leaders: set[int]) -> list[Process]:
        """``leaders``: of all commands. A number that was used again is nobody's session."""
        found = {}
        foreign = leaders - {self.leader}
        for process in processes:
            if process.pid in foreign or process.session in foreign:
                continue
            if (
                self.leader in (process.pid, process.group, process.session)
                or self._seen.get(process.pid) == process.started
                or has_mark(process.pid, self._marks)
            ):
                found[process.pid] = process
        grown = True
        while grown:
            grown = False
            for process in processes:
                if process.pid not in found and process.parent in found:
                    found[process.pid] = process
                    grown = True
        self._seen.update((process.pid, process.started) for process in found.values())
        return list(found.values())
