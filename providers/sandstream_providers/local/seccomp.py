"""A second fence around a box: system calls that no command needs and that the kernel's worst days
came through. A program for the kernel's filter machine, for bubblewrap's ``--seccomp``.

What is on the list answers "not permitted"; so does every call of another architecture's numbering,
since the list could be got round by it.
"""

from __future__ import annotations

import errno
import platform
import struct

import msgspec

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _SECOND_ARGUMENT_AT = 0, 4, 24
_FEED_TERMINAL, _CONSOLE = 0x5412, 0x541C
"""TIOCSTI and TIOCLINUX: typing into a terminal that others read from."""


class _Machine(msgspec.Struct, frozen=True, kw_only=True):
    audit: int
    ioctl: int
    refused: dict[str, int]
    other_numbering_from: int | None = None
    """Numbers from here on are the same calls again, for 32-bit pointers."""


_SAME_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
}
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        ioctl=16,
        other_numbering_from=0x40000000,
        refused={
            **_SAME_EVERYWHERE,
            "syslog": 103,
            "uselib": 134,
            "pivot_root": 155,
            "acct": 163,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "iopl": 172,
            "ioperm": 173,
            "init_module": 175,
            "delete_module": 176,
            "quotactl": 179,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "perf_event_open": 298,
            "name_to_handle_at": 303,
            "open_by_handle_at": 304,
            "setns": 308,
            "finit_module": 313,
            "kexec_file_load": 320,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        ioctl=29,
        refused={
            **_SAME_EVERYWHERE,
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "quotactl": 60,
            "acct": 89,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "syslog": 116,
            "reboot": 142,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "swapon": 224,
            "swapoff": 225,
            "perf_event_open": 241,
            "name_to_handle_at": 264,
            "open_by_handle_at": 265,
            "setns": 268,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
            "kexec_file_load": 294,
        },
    ),
}


def program(machine: str = "") -> bytes | None:
    """The filter for this machine, or None: its numbers are not known here."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    steps = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_IF_EQUAL, 1, 0, known.audit), refuse]
    steps.append((_LOAD, 0, 0, _NUMBER_AT))
    if known.other_numbering_from is not None:
        steps += [(_IF_AT_LEAST, 0, 1, known.other_numbering_from), refuse]
    for number in sorted(known.refused.values()):
        steps += [(_IF_EQUAL, 0, 1, number), refuse]
    steps += [(_IF_EQUAL, 1, 0, known.ioctl), allow]
    steps += [(_LOAD, 0, 0, _SECOND_ARGUMENT_AT), (_IF_EQUAL, 1, 0, _FEED_TERMINAL)]
    steps += [(_IF_EQUAL, 0, 1, _CONSOLE), refuse, allow]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
