"""Plain values of the sandbox API: accounts, permission bits, command results, endpoints."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from pydantic import BaseModel

__all__ = ["ExecResult", "ExposedPortEndpoint", "FileMode", "Group", "Permissions", "User"]


class FileMode(IntEnum):
    """Permission bits of one class of users; combine with ``|``."""

    ALL = 0o7
    NONE = 0
    READ = 4
    WRITE = 2
    EXEC = 1


class User(BaseModel):
    """An account in the sandbox. Two users with one name are the same user."""

    name: str
    """The name of the account."""

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, User) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)


class Group(BaseModel):
    """A group in the sandbox and its members. Two groups with one name are the same group."""

    name: str
    """The name of the group."""
    users: list[User]
    """Its members."""

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Group) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)


class Permissions(BaseModel):
    """What owner, group and others may do; its text form is that of ``ls -l``.

    Example:
        private = Permissions(owner=FileMode.READ | FileMode.WRITE)
        notes = File(content=b"hello", permissions=private)
    """

    owner: int = 0o7
    """The bits of the owner, see :class:`FileMode`."""
    group: int = 0
    """The bits of the group."""
    other: int = 0
    """The bits of all others."""
    directory: bool = False
    """Whether they belong to a directory."""

    def to_mode(self) -> int:
        """The permissions as the number that ``chmod`` takes."""
        kind = stat.S_IFDIR if self.directory else 0
        return kind | int(self.owner) << 6 | int(self.group) << 3 | int(self.other)

    @classmethod
    def from_mode(cls, mode: int) -> Permissions:
        """Read the number that ``stat`` gives.

        Args:
            mode: The number, with or without the bits of the file type.
        """
        return cls(
            owner=mode >> 6 & 7,
            group=mode >> 3 & 7,
            other=mode & 7,
            directory=bool(mode & stat.S_IFDIR),
        )

    @classmethod
    def from_str(cls, perms: str) -> Permissions:
        """Parse ``drwxr-x---``; a trailing ``+``, ``@`` or ``.`` (ACLs etc.) is ignored.

        Args:
            perms: The text, as ``ls -l`` prints it.

        Raises:
            ValueError: The text is something else.
        """
        text = perms[:-1] if len(perms) == 11 and perms[-1] in "+@." else perms
        if len(text) != 10:
            raise ValueError(f"permissions must have 10 characters, like '-rw-r--r--': {perms!r}")
        if text[0] not in "d-":
            raise ValueError(f"permissions must start with 'd' or '-': {perms!r}")
        return cls(
            owner=_bits(text[1:4], "s"),
            group=_bits(text[4:7], "s"),
            other=_bits(text[7:10], "t"),
            directory=text[0] == "d",
        )

    def owner_can(self, mode: int) -> Self:
        """Set what the owner may do.

        Args:
            mode: The bits, see :class:`FileMode`.
        """
        self.owner = mode
        return self

    def group_can(self, mode: int) -> Self:
        """Set what the group may do.

        Args:
            mode: The bits, see :class:`FileMode`.
        """
        self.group = mode
        return self

    def others_can(self, mode: int) -> Self:
        """Set what all others may do.

        Args:
            mode: The bits, see :class:`FileMode`.
        """
        self.other = mode
        return self

    def __repr__(self) -> str:
        flags = "".join(
            letter if bits & flag else "-"
            for bits in (self.owner, self.group, self.other)
            for letter, flag in zip("rwx", (4, 2, 1), strict=True)
        )
        return ("d" if self.directory else "-") + flags

    def __str__(self) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return (
            self.to_mode() == other.to_mode() if isinstance(other, Permissions) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self.to_mode())


def _bits(triplet: str, special: str) -> int:
    """The bits of ``rwx``; ``special`` is the letter for set-id or sticky on top of ``x``."""
    allowed = ("r-", "w-", f"x-{special}{special.upper()}")
    for letter, choices in zip(triplet, allowed, strict=True):
        if letter not in choices:
            raise ValueError(f"permissions {triplet!r}: {letter!r} must be one of {choices!r}")
    executable = triplet[2] in ("x", special)
    return 4 * (triplet[0] == "r") | 2 * (triplet[1] == "w") | executable


class ExecResult:
    """The result of a command. A non-zero exit code is a result, not an error.

    Example:
        result = await session.exec("pytest -q")
        print(result.stdout.decode() if result.ok() else f"failed with {result.exit_code}")
    """

    stdout: bytes
    """The standard output."""
    stderr: bytes
    """The standard error output."""
    exit_code: int
    """The exit code."""

    def __init__(self, *, stdout: bytes, stderr: bytes, exit_code: int) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code

    def ok(self) -> bool:
        """Whether the command ended with the exit code 0."""
        return self.exit_code == 0

    def __repr__(self) -> str:
        return (
            f"ExecResult(exit_code={self.exit_code}, "
            f"stdout={self.stdout!r}, stderr={self.stderr!r})"
        )


@dataclass(frozen=True)
class ExposedPortEndpoint:
    """The address at which a port of the sandbox can be reached from outside."""

    host: str
    """The name or address of the host."""
    port: int
    """The port on that host."""
    tls: bool = False
    """Whether the connection is encrypted."""
    query: str = ""
    """A query that requests must have, such as a token."""

    def url_for(self, scheme: str) -> str:
        """The URL of the endpoint.

        Args:
            scheme: ``http`` or ``ws``; the URL is ``https`` or ``wss`` if the endpoint has TLS.

        Returns:
            The URL.

        Raises:
            ValueError: The scheme is unknown.
        """
        name = scheme.lower()
        if name not in ("http", "ws"):
            raise ValueError(f"scheme must be 'http' or 'ws', not {scheme!r}")
        host = f"[{self.host}]" if ":" in self.host and self.host[0] != "[" else self.host
        port = "" if self.port == (443 if self.tls else 80) else f":{self.port}"
        query = self.query.removeprefix("?")
        return f"{name}{'s' if self.tls else ''}://{host}{port}/" + (f"?{query}" if query else "")
