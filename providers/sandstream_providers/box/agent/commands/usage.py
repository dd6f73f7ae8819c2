"""How much memory processes hold, also where their own sizes do not show it.

Memory without a name in the process table: files in memory (memfd) that are only open, System V
segments, and the temporary directories. Shared memory that a process has mapped but never touched
cannot be seen from here.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Iterable

    from sandstream_providers.box.agent.commands.tree import Process


KB = 1024
BLOCK = 512
INODE_BYTES = 1024
"""What the kernel keeps for an empty file."""
MEMFD = "/memfd:"
SHARED = b"/dev/zero (deleted)"
"""How memory that was mapped without a file, to be shared, is called in a list of mappings."""
SEGMENT = b"/SYSV"
IPC_RMID = 0


class Segment:
    """One of System V shared memory."""

    __slots__ = ("attached", "creator", "number", "size")

    def __init__(self, fields: list[bytes]) -> None:
        self.number = int(fields[1])
        self.creator = int(fields[4])
        self.attached = int(fields[6])
        self.size = int(fields[14])


def in_directories(folders: Iterable[str]) -> int:
    """What temporary directories hold. They are in memory."""
    total = 0
    for folder in folders:
        facts = os.statvfs(folder)
        total += (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        total += (facts.f_files - facts.f_ffree) * INODE_BYTES
    return total


def in_open_files(processes: Iterable[Process]) -> dict[int, int]:
    """By process: its part of the files in memory that it has open."""
    holders: dict[tuple[int, int], set[int]] = {}
    sizes: dict[tuple[int, int], int] = {}
    for process in processes:
        for key, size in _memfds(process.pid):
            holders.setdefault(key, set()).add(process.pid)
            sizes[key] = size
    found: dict[int, int] = {}
    for key, pids in holders.items():
        for pid in pids:
            found[pid] = found.get(pid, 0) + sizes[key] // len(pids)
    return found


def _memfds(pid: int) -> list[tuple[tuple[int, int], int]]:
    folder = f"/proc/{pid}/fd"
    found = []
    try:
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            try:
                if os.readlink(path).startswith(MEMFD):
                    facts = os.stat(path)
                    found.append(((facts.st_dev, facts.st_ino), facts.st_blocks * BLOCK))
            except FileNotFoundError:
                continue  # closed meanwhile
    except OSError:
        pass  # it has ended, or does not let others look
    return found


def segments() -> list[Segment]:
    """The shared segments of the box. Only a box with its own process table has any."""
    if os.getpid() != 1:
        return []
    try:
        with open("/proc/sysvipc/shm", "rb") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return []  # a kernel without them
    return [Segment(line.split()) for line in lines]


def holder(segment: Segment, pids: Iterable[int]) -> int:
    """The process that made it, or, if that has ended, one that is attached to it; 0: none."""
    pids = list(pids)
    if segment.creator in pids or not segment.attached:
        return segment.creator if segment.creator in pids else 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                for line in file:
                    if SEGMENT in line and int(line.split(None, 5)[4]) == segment.number:
                        return pid
        except OSError:
            continue  # it has ended, or does not let others look
    return 0


def remove(segment: Segment) -> None:
    """No process is attached to it, and the one that made it has ended."""
    import _ctypes

    shmctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "shmctl")  # type: ignore[arg-type]
    _ctypes.call_function(shmctl, (segment.number, IPC_RMID, 0))


def own_memory(process: Process) -> int:
    """Exactly, and slowly: pages that several share are divided among them. Without what
    ``in_open_files``, ``segments`` and ``in_directories`` count.
    """
    facts = _numbers(f"/proc/{process.pid}/smaps_rollup")
    if b"Pss_Anon" in facts:
        shared = facts.get(b"Pss_Shmem", 0)
        return facts[b"Pss_Anon"] + (_shared_without_name(process.pid) if shared else 0)
    facts = _numbers(f"/proc/{process.pid}/status")
    return facts.get(b"RssAnon", process.resident) + facts.get(b"RssShmem", 0)


def _numbers(path: str) -> dict[bytes, int]:
    """The lines ``name: number kB`` of a file, in bytes."""
    found = {}
    try:
        with open(path, "rb") as file:
            for line in file:
                parts = line.split()
                if len(parts) == 3 and parts[2] == b"kB":
                    found[parts[0][:-1]] = int(parts[1]) * KB
    except OSError:
        return {}
    return found


def _shared_without_name(pid: int) -> int:
    total = 0
    inside = False
    try:
        with open(f"/proc/{pid}/smaps", "rb") as file:
            for line in file:
                if line[:1].islower() or line[:1].isdigit():
                    inside = line.rstrip().endswith(SHARED)
                elif inside and line.startswith(b"Pss:"):
                    total += int(line.split()[1]) * KB
    except OSError:
        return total
    return total


def in_group(stat: int) -> tuple[int, int]:
    """What a control group's processes hold for themselves, and its shared memory, from the open
    ``memory.stat`` of either version.
    """
    facts = dict(
        line.split() for line in os.pread(stat, 16 * KB, 0).splitlines() if line.count(b" ") == 1
    )
    own = facts.get(b"anon", facts.get(b"rss", b"0"))
    return int(own), int(facts.get(b"shmem", b"0"))
