"""CPU time and memory of a process, from the kernel. Linux only (/proc)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """The total user and system time so far of all threads of these processes."""
    return sum(_cpu_s(pid) for pid in pids)


def threads_cpu_s(pid: int) -> float:
    """CPU time of a process's current threads, in nanosecond resolution, for short measurements."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            spent_ns += int((task / "schedstat").read_text().split()[0])
    return spent_ns / 1e9


def machine_busy_s() -> float:
    """The total CPU time of all processes of the machine, on all cores."""
    user, nice, system, _idle, _wait, *interrupts = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    )
    return (user + nice + system + sum(interrupts)) / _TICKS_PER_S


def peak_mb(pids: Iterable[int]) -> float:
    """The sum of the processes' peak resident memory."""
    return sum(_status_kb(pid, "VmHWM") for pid in pids) / 1024


def reset_peak(pids: Iterable[int]) -> None:
    """Reset the peak memory of these processes."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def rss_mb(pid: int) -> float:
    return _status_kb(pid, "VmRSS") / 1024


def proportional_mb(pids: Iterable[int]) -> float:
    """Resident memory; shared memory is divided among the processes that share it."""
    return sum(_kb(Path(f"/proc/{pid}/smaps_rollup"), "Pss") for pid in pids) / 1024


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return [*children, *(it for child in children for it in descendants(child))]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _status_kb(pid: int, name: str) -> int:
    return _kb(Path(f"/proc/{pid}/status"), name)


def _kb(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0
