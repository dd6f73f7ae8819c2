"""A third fence, by the kernel's Landlock: nothing below this process writes outside of the box's
own directories, however it got at a path there, nor reaches processes or abstract sockets outside.

It is the same for the agent and for all commands, and cannot be taken off again.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Iterable


CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls; the numbers are the same on all machines."""
ASK_VERSION = 1
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38
LEAST_ABI = 2
"""The first one forbids to move files from one directory to another altogether."""

WRITE_FILE, REMOVE_DIR, REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE = 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14
DEVICES = MAKE_CHAR | MAKE_BLOCK
"""Never allowed."""
TRUNCATE_ABI = 3
SCOPES_ABI = 6
SCOPES = 1 | 2
"""Abstract unix sockets, signals."""


class Unavailable(Exception):
    """The kernel does not do what it said it could."""


def abi() -> int:
    """The version of this kernel; 0: it has none, or it is switched off."""
    try:
        return max(0, _call("syscall", CREATE_RULESET, None, 0, ASK_VERSION))
    except ImportError:
        return 0  # a Python without ctypes


def restrict(config: dict[str, Any] | None, folders: Iterable[int]) -> None:
    """``config``: the version to use, ``write``: paths to write below, ``change``: paths whose
    files may be written, but not made or removed. ``folders`` are open directories to write below.
    """
    if not config:
        return
    version = config["abi"]
    handled = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO
    handled |= MAKE_SYM | REFER | DEVICES
    in_files = WRITE_FILE
    if version >= TRUNCATE_ABI:
        handled |= TRUNCATE
        in_files |= TRUNCATE
    rules = struct.pack("=Q", handled)
    if version >= SCOPES_ABI:
        rules = struct.pack("=QQQ", handled, 0, SCOPES)
    ruleset = _must("syscall", CREATE_RULESET, rules, len(rules), 0)
    try:
        for folder in folders:
            _allow(ruleset, folder, handled & ~DEVICES)
        for path in config["write"]:
            everything = handled & ~DEVICES
            _allow_path(ruleset, path, everything if os.path.isdir(path) else in_files)
        for path in config["change"]:
            _allow_path(ruleset, path, in_files)
        _must("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _must("syscall", RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _allow(ruleset, fd, access)
    finally:
        os.close(fd)


def _allow(ruleset: int, fd: int, access: int) -> None:
    _must("syscall", ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", access, fd), 0)


def _must(function: str, *arguments: Any) -> int:
    result = _call(function, *arguments)
    if result < 0:
        raise Unavailable(f"Landlock: {function}{arguments} failed")
    return result


def _call(function: str, *arguments: Any) -> int:
    import _ctypes  # the whole ctypes package takes 10 ms to load

    address = _ctypes.dlsym(_ctypes.dlopen(None, 0), function)  # type: ignore[arg-type]
    return int(_ctypes.call_function(address, arguments))
