"""What is said about boxes, as values: what to make, which command to run, what was found.

Paths are POSIX, absolute, as seen inside the box, unless a field says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from sandstream_providers.errors import ProviderError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a box may use. None: we set no limit."""

    cpus: float | None = None
    """How many processors the box may use; 0.5 is half the time of one."""
    memory_mb: int | None = 4096
    """The memory of all processes together, in megabytes."""
    processes: int | None = 512
    """How many processes may run at once."""
    disk_mb: int | None = None
    """Of the workspace. A provider without quotas keeps the workspace in memory then."""
    file_mb: int | None = 4096
    """The largest single file."""
    output_mb: int = 64
    """How much of each output stream of a command is kept whole."""
    wall_s: float | None = None
    """The longest time for any command."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A host path that the box sees."""

    path: str
    """Where the box sees it."""
    host_path: str
    """The path on the host."""
    read_only: bool = True
    """Whether the box can only read it."""


KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def check_key(key: str) -> str:
    """The key itself, if a box may have it: it is safe as the name of a file."""
    if not KEY.fullmatch(key):
        raise ProviderError(
            f"not a key for a sandbox: {key!r}. Use letters, digits, '_', '.', '-'; at most 128"
        )
    return key


class BoxSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to make."""

    key: str
    """The name of the box: unique for the sandbox and its generation, and never used again."""
    labels: dict[str, str] = {}
    """At least ``owner`` (the installation), ``sandbox`` and ``generation``."""
    root: str = "/workspace"
    """The absolute path of the workspace in the box."""
    env: dict[str, str] = {}
    """The environment of every command."""
    ports: list[int] = []
    """The ports of the box that must be reachable from the host."""
    network: Literal["none", "host"] = "none"
    """Whether commands have no network, or the host's."""
    limits: Limits = Limits()
    """What the box may use."""
    grants: list[Grant] = []
    """Host paths that the box sees."""
    options: dict[str, object] = {}
    """The provider's own."""
    may_exist: bool = False
    """An earlier attempt to make this box may have succeeded: look for it first."""


class BoxInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One box as the provider lists it."""

    key: str
    """The name of the box."""
    labels: dict[str, str]
    """The labels that it was made with."""
    state: Literal["running", "paused", "stopped"]
    """Whether its processes run, are frozen, or have ended."""
    created_at: float
    """Seconds since the epoch."""
    vendor_id: str = ""
    """The vendor's own id, if it has one besides the key."""


class PortAddress(NamedTuple):
    """Where a port of a box can be reached."""

    host: str
    """The name or address of the host."""
    port: int
    """The port there."""
    tls: bool = False
    """Whether the connection is encrypted."""
    query: str = ""
    """What requests must have after the ``?``, such as a token."""


class ResolveRule(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path may end up after links are followed."""

    roots: list[str]
    """The workspace root and the writable grants."""
    read_only_roots: list[str] = []
    """The grants that may only be read."""


class ExecSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    argv: list[str]
    """The program and its arguments. No shell takes part unless it is named here."""
    cwd: str
    """The directory in which the command starts."""
    env: dict[str, str] = {}
    """Added to the box's environment."""
    timeout_s: float | None = None
    """The box kills the command's whole process tree after this time, watched or not."""
    tty: bool = False
    """Whether the command gets a terminal."""
    keep_stdin: bool = False
    """Keep stdin open for :meth:`Box.interact`. Otherwise stdin is empty."""
    stdin: bytes = b""
    """Written at the start; stdin is closed after it unless ``keep_stdin``."""


Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, int, bytes], None]
"""(stream, offset, bytes): called in order, for new output only. Must not block."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a command so far, and its state."""

    state: Literal["running", "exited", "lost"]
    """``lost``: its sandbox went away under it; whether it finished is unknown."""
    session: int
    """A number from 1000 to 99999 by which :meth:`Box.interact` finds a running command."""
    stdout: bytes = b""
    """New since the last answer about this command. With a tty all output is here."""
    stderr: bytes = b""
    """Like ``stdout``, for the error output."""
    exit_code: int | None = None
    """As a shell gives it: 128 + signal for a killed command."""
    killed: Literal["timeout", "memory", "cancelled", ""] = ""
    """Why the box ended the command; empty: it ended by itself, or runs."""
    dropped: int = 0
    """Bytes in the middle of an overlong output that were not kept."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One thing in the workspace, for snapshots and listings."""

    path: str
    """Relative to the requested path. Bytes that are not UTF-8 are surrogate escapes."""
    kind: Literal["file", "dir", "link", "other"]
    mode: int = 0o644
    """Permission bits."""
    size: int = 0
    digest: str = ""
    """The SHA-256 of a file. Only in snapshots."""
    target: str = ""
    """Of a link."""
    mtime_ns: int = 0
    uid: int = 0
    gid: int = 0


class FileWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a batch."""

    path: str
    kind: Literal["file", "dir", "link", "remove", "move"] = "file"
    data: bytes = b""
    mode: int | None = None
    """None: 0o644 for a new file, 0o755 for a new directory, unchanged for an existing one."""
    target: str = ""
    """The target of a link, or of a move."""
    exclusive: bool = False
    """Refuse if it exists."""
    must_exist: bool = False


class ScanItem(msgspec.Struct, frozen=True, kw_only=True):
    """One change that a scan found."""

    entry: Entry
    removed: bool = False
    data: bytes | None = None
    """The whole content of a changed file of at most ``INLINE_BYTES``; bigger ones are fetched with
    :meth:`Box.read`, and their digest is checked.
    """


INLINE_BYTES = 4 * 1024 * 1024
