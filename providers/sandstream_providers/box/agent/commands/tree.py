"""Which processes belong to a command: by parent, group, session, and by two marks that stay when
they detach themselves from all the others. One mark is in their environment, the other one is a
resource limit that the kernel no longer knows a use for (of file locks): a process that clears its
environment keeps it. It can be lowered but never raised again.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Iterable


PAGE = os.sysconf("SC_PAGE_SIZE")
MARK_LIMIT = 10
"""RLIMIT_LOCKS, which Python has no name for."""
UNMARKED = 0
_MARK_LINE = b"\nMax file locks"

helpers: set[int] = set()
"""Processes of the agent itself: no command's, and never to be ended with commands."""


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
    """All processes that can be seen but this one and its helpers."""
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own and int(name) not in helpers:
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


def number_of(pid: int) -> int | None:
    """The number that it is marked with; ``UNMARKED``, or None if it is gone.

    Until its starter has fixed it, the number is only the soft limit.
    """
    try:
        with open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return None
    values = text.partition(_MARK_LINE)[2].split(None, 2)[:2]
    for value in values[::-1]:
        if value.isdigit():
            return int(value)
    return UNMARKED if values else None


def leader(number: int) -> int | None:
    """The first process of the command with this number, also if it only waits to be reaped."""
    if number == UNMARKED:
        return None
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in helpers and number_of(int(name)) == number:
            try:
                session = os.getsid(int(name))
            except OSError:
                continue
            if session == int(name):
                return session
    return None


class Family:
    """One command's processes. Remembers those it has seen, since they may detach themselves."""

    def __init__(self, leader: int, marks: Iterable[bytes], number: int = UNMARKED) -> None:
        self.leader = leader
        self.number = number
        self._marks = tuple(marks)
        self._seen: dict[int, int] = {}

    def members(self, processes: list[Process], leaders: set[int]) -> list[Process]:
        """The processes of this command. ``leaders`` are the session leaders of all commands: a
        process of another leader's session is not of this command, even if it has our mark.
        """
        found = {}
        foreign = leaders - {self.leader}
        for process in processes:
            if process.pid in foreign or process.session in foreign:
                continue
            if (
                self.leader in (process.pid, process.group, process.session)
                or self._seen.get(process.pid) == process.started
                or (self.number != UNMARKED and number_of(process.pid) == self.number)
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
