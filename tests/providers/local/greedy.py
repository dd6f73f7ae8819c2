"""Takes more memory or time than it may: ``python3 greedy.py WAY``. Runs inside a box, from its
workspace; standard library only.
"""

# ruff: noqa: PTH123
from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Callable

MB = 1 << 20
PART = b"x" * MB
HOLD_S = 300


def detached(work: Callable[[], None]) -> None:
    """Run it in a process that has nothing left of its command: no parent, session, environment,
    and by executing something new no trace of the old program either.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for fd in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), fd)
    work()
    os._exit(0)


def again(way: str) -> None:
    """This program once more, without environment."""
    os.execve("/usr/bin/python3", ["python3", "greedy.py", way], {})


def hold() -> None:
    kept = [bytearray(PART) for _ in range(150)]
    time.sleep(HOLD_S)
    print(len(kept))


def processes() -> None:
    for _ in range(4):
        detached(lambda: again("hold"))
        time.sleep(0.3)


def hold_files() -> None:
    for _ in range(9):
        fd = os.memfd_create("greedy")
        for _ in range(80):
            os.write(fd, PART)
            time.sleep(0.002)
    time.sleep(HOLD_S)


def memfd() -> None:
    """Files in memory that are only open, by a process that has nothing else."""
    detached(lambda: again("hold_files"))


def shared() -> None:
    detached(lambda: again("hold_shared"))


def hold_shared() -> None:
    kept = []
    for _ in range(9):
        kept.append(mmap.mmap(-1, 80 * MB))
        kept[-1].write(b"x" * 80 * MB)
    time.sleep(HOLD_S)


def segments() -> None:
    """System V segments, which stay when everybody has left."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    for _ in range(9):
        number = libc.shmget(0, ctypes.c_size_t(80 * MB), 0o1600)
        if number < 0:
            break
        at = libc.shmat(number, None, 0)
        ctypes.memset(at, 1, 80 * MB)
        libc.shmdt(ctypes.c_void_p(at))


def directories() -> None:
    """Fill all of them; says how many megabytes there was room for, and why it ended."""
    total = 0
    errors = set()
    for folder in ("/tmp", "/run", "/home", "/root", "/var/tmp", "/dev/shm"):
        with open(folder + "/big", "wb", buffering=0) as file:
            try:
                while total < 4096:
                    total += file.write(PART) == MB
            except OSError as error:
                errors.add(error.strerror)
    print(total, *errors)


def linger() -> None:
    """Detach, several times, and take too long."""
    for _ in range(3):
        detached(lambda: os.execve("/bin/sh", ["sh", "-c", "sleep 300; :", "linger-on"], {}))
    time.sleep(60)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
