"""A second fence around a box: the filter of its system calls, for bubblewrap's ``--seccomp``.

The lists are in ``syscalls``. The filter allows what is listed there, and of a few calls only some
arguments: no new namespaces, no feeding of terminals, ordinary sockets. A program with another
architecture's numbering is ended, since its numbers mean other calls.
"""

from __future__ import annotations

import errno
import platform
import struct

from sandstream_providers.local import syscalls

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_FEED_TERMINAL, _CONSOLE = 0x5412, 0x541C
"""TIOCSTI and TIOCLINUX: typing into a terminal that others read from."""
_NAMESPACES = 0x7E020000
"""The flags of ``clone`` that make a namespace."""
_TIME_NAMESPACE = 0x80
"""Only for ``unshare``: in ``clone`` this bit is part of the exit signal."""
_PERSONALITIES = (0, 0xFFFFFFFF)
"""The ordinary one, and the value that asks for the current one."""

FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
PROTOCOLS = {"any": 0, "ICMP": 1, "TCP": 6, "UDP": 17, "ICMPv6": 58}
"""Of AF_INET and AF_INET6. Others would make the kernel load modules."""
NETLINK_PROTOCOLS = {"NETLINK_ROUTE": 0}
"""Asking for the network interfaces: ``getifaddrs``, and with it Node, cannot do without."""

Step = tuple[int, int, int, int]
_ALLOWED: Step = (_RETURN, 0, 0, _ALLOW)


def _fails(number: int) -> Step:
    return (_RETURN, 0, 0, _ERRNO | number)


def _argument(index: int) -> Step:
    """Its lower half: the kernel does not look at the upper one of any argument checked here."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * index)


def program(machine: str = "") -> bytes | None:
    """The filter for this machine; None if the numbers of its system calls are not known."""
    machine = machine or platform.machine()
    if machine not in syscalls.MACHINES:
        return None
    steps: list[Step] = [(_LOAD, 0, 0, _ARCHITECTURE_AT)]
    steps += [(_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]), (_RETURN, 0, 0, _KILL)]
    steps.append((_LOAD, 0, 0, _NUMBER_AT))
    allowed = syscalls.allowed_numbers(machine)
    for name, block in _checked().items():
        steps += [(_IF_EQUAL, 0, len(block), allowed[name]), *block]
    steps += _by_number(
        set(allowed.values()), set(syscalls.numbers(syscalls.REFUSED, machine).values())
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _checked() -> dict[str, list[Step]]:
    """Calls that depend on an argument. Each block ends in a return."""
    no_namespace = [_fails(errno.EPERM), _ALLOWED]
    return {
        "ioctl": [
            _argument(1),
            *_one_of((_FEED_TERMINAL, _CONSOLE), _fails(errno.EPERM)),
            _ALLOWED,
        ],
        "clone": [_argument(0), (_IF_ANY_BIT, 0, 1, _NAMESPACES), *no_namespace],
        "unshare": [
            _argument(0),
            (_IF_ANY_BIT, 0, 1, _NAMESPACES | _TIME_NAMESPACE),
            *no_namespace,
        ],
        "personality": [_argument(0), *_one_of(_PERSONALITIES, _ALLOWED), _fails(errno.EPERM)],
        "socket": _socket(),
        "socketpair": [
            _argument(0),
            *_one_of((FAMILIES["AF_UNIX"],), _ALLOWED),
            _fails(errno.EAFNOSUPPORT),
        ],
    }


def _socket() -> list[Step]:
    internet = [
        _argument(2),
        *_one_of(tuple(PROTOCOLS.values()), _ALLOWED),
        _fails(errno.EPROTONOSUPPORT),
    ]
    netlink = [
        _argument(2),
        *_one_of(tuple(NETLINK_PROTOCOLS.values()), _ALLOWED),
        _fails(errno.EPROTONOSUPPORT),
    ]
    return [
        _argument(0),
        *_one_of((FAMILIES["AF_UNIX"],), _ALLOWED),
        (_IF_EQUAL, 0, len(netlink), FAMILIES["AF_NETLINK"]),
        *netlink,
        (_IF_EQUAL, 1, 0, FAMILIES["AF_INET"]),
        (_IF_EQUAL, 0, len(internet), FAMILIES["AF_INET6"]),
        *internet,
        _fails(errno.EAFNOSUPPORT),
    ]


def _one_of(values: tuple[int, ...], answer: Step) -> list[Step]:
    return [step for value in values for step in ((_IF_EQUAL, 0, 1, value), answer)]


def _by_number(allowed: set[int], refused: set[int]) -> list[Step]:
    """From the highest number down: the first border that a number reaches decides.

    Neighbours with one answer share a step, and what lies beyond all of them does not exist, which
    goes for the numbers of the x32 ABI, too.
    """

    def answer(number: int) -> Step:
        if number in allowed:
            return _ALLOWED
        return _fails(errno.EPERM if number in refused else errno.ENOSYS)

    steps: list[Step] = []
    for number in range(max(allowed | refused) + 1, 0, -1):
        if answer(number) != answer(number - 1):
            steps += [(_IF_AT_LEAST, 0, 1, number), answer(number)]
    return [*steps, answer(0)]
