"""What a provider can do. The sandbox actor knows only this; one contract suite checks all of them.

A vendor does not implement this interface but the much smaller ``box_host.BoxHost``.

A *provider* makes and finds boxes. A *box* is one live sandbox: commands, files, ports. Everything
that changes something is named by an operation id (``op``): the same id again gives the first
outcome and does nothing, so that an actor that died between an effect and its answer can ask again.

Paths are POSIX, absolute, as seen inside the box; text may hold surrogate escapes, for names that
are not UTF-8. Where a path may lie is the caller's rule (``ResolveRule``), checked inside the box
after following links.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a box may use. None: no limit of ours."""

    cpus: float | None = None
    memory_mb: int | None = 4096
    processes: int | None = 512
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
    host_path: str
    read_only: bool = True


KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def check_key(key: str) -> str:
    """The key itself, if a box may have it: it is safe as the name of a file."""
    if not KEY.fullmatch(key):
        raise ProviderError(
            f"not a key for a sandbox: {key!r}. Use letters, digits, '_', '.', '-'; at most 128"
        )
    return key


class BoxSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to make. ``key`` is unique for the sandbox and its generation, and never used again."""

    key: str
    labels: dict[str, str] = {}
    """At least ``owner`` (the installation), ``sandbox`` and ``generation``."""
    root: str = "/workspace"
    env: dict[str, str] = {}
    """The environment of every command."""
    ports: list[int] = []
    network: Literal["none", "host"] = "none"
    limits: Limits = Limits()
    grants: list[Grant] = []
    options: dict[str, object] = {}
    """The provider's own."""


class BoxInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One box as the provider lists it."""

    key: str
    labels: dict[str, str]
    state: Literal["running", "paused", "stopped"]
    created_at: float
    """Seconds since the epoch."""


class ResolveRule(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path may end up after links are followed."""

    roots: list[str]
    """The workspace root and the writable grants."""
    read_only_roots: list[str] = []


class ExecSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    argv: list[str]
    cwd: str
    env: dict[str, str] = {}
    """Added to the box's environment."""
    timeout_s: float | None = None
    """The box kills the command's whole process tree after this time, watched or not."""
    tty: bool = False
    keep_stdin: bool = False
    """Leave stdin open for :meth:`Box.interact`; else it is empty."""
    stdin: bytes = b""
    """Written at the start; stdin is closed after it unless ``keep_stdin``."""


Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, int, bytes], None]
"""(stream, offset, bytes): called in order, for new output only. Must not block."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a command has said and how it stands."""

    state: Literal["running", "exited", "lost"]
    """``lost``: its sandbox went away under it; whether it finished is unknown."""
    session: int
    """A number from 1000 to 99999 by which :meth:`Box.interact` finds a running command."""
    stdout: bytes = b""
    """New since the last answer about this command. With a tty all output is here."""
    stderr: bytes = b""
    exit_code: int | None = None
    """As a shell gives it: 128 + signal for a killed command."""
    killed: Literal["timeout", "memory", "cancelled", ""] = ""
    dropped: int = 0
    """Bytes in the middle of an overlong output that were not kept."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One thing in the workspace, for snapshots and listings."""

    path: str
    """Relative to what was asked for; surrogate escapes for odd names."""
    kind: Literal["file", "dir", "link", "other"]
    mode: int = 0o644
    """Permission bits."""
    size: int = 0
    digest: str = ""
    """SHA-256 of a file, in snapshots."""
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
    """Of a link, or where to move."""
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


class Box(Protocol):
    """A live sandbox."""

    key: str
    root: str

    async def run(
        self,
        op: str,
        spec: ExecSpec,
        *,
        wait_s: float | None = None,
        on_output: OnOutput | None = None,
    ) -> Output:
        """Start the command unless ``op`` was started before; wait for its end.

        With ``wait_s``, return after so long (counted from the command's start) even if it runs on.
        Asked again with the same ``op``, it attaches to the command, or gives its outcome again:
        the output since the last answer to *another* operation about this command.
        """
        ...

    async def interact(
        self,
        op: str,
        session: int,
        data: bytes,
        *,
        wait_s: float,
        on_output: OnOutput | None = None,
    ) -> Output:
        """Write to a running command's stdin, once per ``op``; wait so long for output or its end.

        Raises :class:`NoSuchSession`, or :class:`StdinClosed` if data is given and stdin is closed.
        """
        ...

    async def first_request(self, op: str, request: str) -> str:
        """Which request asked for this operation first: ``request``, unless there was another.

        The box remembers it as long as it remembers the operation. So an actor notices that an
        operation was begun on behalf of a request that the log no longer contains.
        """
        ...

    async def kill(self, op: str) -> None:
        """End the command's whole process tree. One that is unknown or over is no error."""
        ...

    async def kill_all(self) -> None:
        """End all commands, background ones too."""
        ...

    async def sessions(self) -> int:
        """How many commands are running."""
        ...

    async def read(
        self, path: str, rule: ResolveRule, *, offset: int = 0, limit: int | None = None
    ) -> bytes: ...

    async def stat(self, path: str, rule: ResolveRule) -> Entry:
        """Follows links. ``path`` of the result is the resolved absolute path."""
        ...

    async def list(self, path: str, rule: ResolveRule) -> list[Entry]:
        """A directory's entries, sorted; ``path`` is the name. Does not follow links."""
        ...

    async def make_dir(
        self, op: str, path: str, rule: ResolveRule, *, parents: bool = False
    ) -> None: ...

    async def remove(
        self, op: str, path: str, rule: ResolveRule, *, recursive: bool = False
    ) -> None: ...

    async def move(self, op: str, source: str, target: str, rule: ResolveRule) -> None: ...

    async def change(self, op: str, changes: Sequence[FileWrite], rule: ResolveRule) -> None:
        """Make all changes or none: staged first, then put in place; undone on failure.

        Parents are made. A link in the way is not followed out of the roots.
        """
        ...

    async def fill(self, op: str, entries: Sequence[FileWrite], rule: ResolveRule) -> None:
        """Lay out files, directories and links, each with its mode, where nothing is yet: quicker
        than :meth:`change`, but on failure the files laid out so far stay. Parents are made. A file
        that appeared in the place of an entry meanwhile is replaced.
        """
        ...

    async def append(self, op: str, path: str, data: bytes, rule: ResolveRule, *, at: int) -> None:
        """Write ``data`` at offset ``at`` (which is the file's length so far): for big files."""
        ...

    def scan(self, exclude: Sequence[str], *, full: bool) -> AsyncIterator[ScanItem]:
        """What changed below the root since the last scan of this object that ran to its end
        (``full=False``), or everything, with digests but without the data of what has not changed
        (``full=True``). Raises :class:`ScanOutdated` if another object scanned since: then a full
        scan is needed.

        Unchanged files (by inode, size, ctime and mtime) are not read again. Sockets, fifos and
        devices are left out. ``exclude``: paths relative to the root, with all below them.
        """
        ...

    async def prime(self, entries: Sequence[Entry]) -> None:
        """Tell the box the digests of files that were just restored, so that a scan need not read
        them.
        """
        ...

    async def clear(self, op: str, keep: Sequence[str] = ()) -> None:
        """Empty the root, except for these relative paths."""
        ...

    async def port(self, port: int) -> tuple[str, int]:
        """Where a declared port can be reached from the host: (host, port).

        Raises :class:`PortUnavailable`.
        """
        ...


class Provider(Protocol):
    """Makes, finds and ends boxes. All methods may be called again after a lost answer."""

    name: str

    @property
    def powers(self) -> frozenset[str]:
        """Of ``pty``, ``ports``, ``pause``, ``users``, ``limits.cpu``, ``limits.memory``,
        ``limits.disk``, ``isolated``.
        """
        ...

    async def check(self) -> dict[str, str]:
        """Try what works here, and describe it for people: ``{"isolation": "bubblewrap", ...}``.

        Raises :class:`ProviderUnavailable` with what to do about it.
        """
        ...

    async def create(self, spec: BoxSpec) -> Box:
        """A running, empty box. If a box with this key exists it is returned as it is."""
        ...

    async def get(self, key: str) -> Box | None:
        """The running box; a stopped one is started again with its files. None: there is none."""
        ...

    async def stop(self, key: str) -> None:
        """End all processes, keep the files."""
        ...

    async def pause(self, key: str) -> None:
        """Freeze all processes; they take no CPU until :meth:`resume`."""
        ...

    async def resume(self, key: str) -> None: ...

    async def delete(self, key: str) -> None:
        """End it and remove all traces. No error if there is none."""
        ...

    async def list_owned(self, owner: str) -> list[BoxInfo]:
        """All boxes with this owner label, in any state."""
        ...

    async def fetch_git(
        self, box: Box, url: str, ref: str, target: str, *, public_only: bool = False
    ) -> None:
        """Clone a repository (shallow, no credentials) into a directory of the box, with network
        even if the box has none. Raises :class:`GitFailed`.

        ``public_only``: connect only to public addresses, also if a name has changed its meaning
        or a server redirects git.
        """
        ...

    async def close(self) -> None:
        """Let go of connections. Boxes live on."""
        ...


@runtime_checkable
class Leasing(Protocol):
    """A provider whose boxes may end by themselves when no process holds them.

    A process that made or got a box holds it until it stops, deletes or closes, or dies.
    """

    def hold(self, key: str) -> None:
        """Hold a box that this process has not used. No error if there is none."""
        ...

    async def stop_idle(self) -> None:
        """Before a process ends: end the boxes that it alone holds and in which nothing runs. Their
        files stay.
        """
        ...


# --- errors ---------------------------------------------------------------------------------------


class ProviderError(Exception):
    """What went wrong, as data: the actor turns it into the public error of that code."""

    code = "sandbox_error"
    retryable = False

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        self.data: Mapping[str, object] = data


class ProviderUnavailable(ProviderError):
    """This provider cannot work here; the message says what to install or to allow."""

    code = "provider_unavailable"


class BoxGone(ProviderError):
    """The box died or was removed while it was used. What ran in it is lost."""

    code = "box_gone"
    retryable = True


class LimitReached(ProviderError):
    """The box cannot start one more process, or has no space left."""

    code = "limit_reached"


class PathEscapes(ProviderError):
    """A path leads out of the allowed roots. ``data["reason"]``: ``escape``, ``depth``,
    ``read_only``.
    """

    code = "path_escapes"


class NotFound(ProviderError):
    code = "not_found"


class WrongKind(ProviderError):
    """A directory where a file is needed, or the other way round, or something that exists."""

    code = "wrong_kind"


class NotPermitted(ProviderError):
    code = "not_permitted"


class NoSpace(ProviderError):
    code = "no_space"


class ScanOutdated(ProviderError):
    """What this client knows of the workspace is not what the last scan found."""

    code = "scan_outdated"


class CannotExecute(ProviderError):
    """The command itself could not be started (no such program, bad working directory)."""

    code = "cannot_execute"


class NoSuchSession(ProviderError):
    code = "no_such_session"


class StdinClosed(ProviderError):
    code = "stdin_closed"


class PortUnavailable(ProviderError):
    code = "port_unavailable"


class GitFailed(ProviderError):
    """``data["reason"]``: ``missing`` (no git), ``clone``, ``ref``, ``private`` (a host that is
    not public, with ``public_only``). No text of it has the user or password of a URL.
    """

    code = "git_failed"
