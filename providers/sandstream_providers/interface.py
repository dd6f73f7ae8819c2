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

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from sandstream_providers.box_values import INLINE_BYTES as INLINE_BYTES
from sandstream_providers.box_values import KEY as KEY
from sandstream_providers.box_values import BoxInfo as BoxInfo
from sandstream_providers.box_values import BoxSpec as BoxSpec
from sandstream_providers.box_values import Entry as Entry
from sandstream_providers.box_values import ExecSpec as ExecSpec
from sandstream_providers.box_values import FileWrite as FileWrite
from sandstream_providers.box_values import Grant as Grant
from sandstream_providers.box_values import Limits as Limits
from sandstream_providers.box_values import OnOutput as OnOutput
from sandstream_providers.box_values import Output as Output
from sandstream_providers.box_values import PortAddress as PortAddress
from sandstream_providers.box_values import ResolveRule as ResolveRule
from sandstream_providers.box_values import ScanItem as ScanItem
from sandstream_providers.box_values import Stream as Stream
from sandstream_providers.box_values import check_key as check_key
from sandstream_providers.errors import BoxGone as BoxGone
from sandstream_providers.errors import CannotExecute as CannotExecute
from sandstream_providers.errors import GitFailed as GitFailed
from sandstream_providers.errors import LimitReached as LimitReached
from sandstream_providers.errors import NoSpace as NoSpace
from sandstream_providers.errors import NoSuchSession as NoSuchSession
from sandstream_providers.errors import NotFound as NotFound
from sandstream_providers.errors import NotPermitted as NotPermitted
from sandstream_providers.errors import PathEscapes as PathEscapes
from sandstream_providers.errors import PortUnavailable as PortUnavailable
from sandstream_providers.errors import ProviderError as ProviderError
from sandstream_providers.errors import ProviderUnavailable as ProviderUnavailable
from sandstream_providers.errors import ScanOutdated as ScanOutdated
from sandstream_providers.errors import StdinClosed as StdinClosed
from sandstream_providers.errors import WrongKind as WrongKind


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

        Asked again with the same ``op``, it attaches to the command, or gives its outcome again:
        the output since the last answer to *another* operation about this command.

        Args:
            op: The id of the operation.
            spec: The command.
            wait_s: Return after so many seconds, counted from the command's start, even if it runs
                on; ``None`` waits for its end.
            on_output: Called with new output as it arrives.
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
        """Write to a running command's stdin, once per ``op``.

        Args:
            op: The id of the operation.
            session: The number of the command, from :class:`Output`.
            data: What to write; empty only waits for output.
            wait_s: How many seconds to wait for output or the command's end.
            on_output: Called with new output as it arrives.

        Raises:
            NoSuchSession: No running command has this number.
            StdinClosed: There is data to write, and stdin is closed.
        """
        ...

    async def first_request(self, op: str, request: str) -> str:
        """The request that asked for this operation first: ``request``, or an earlier one.

        The box remembers it as long as it remembers the operation. So an actor notices that an
        operation was begun on behalf of a request that the log no longer contains.

        Args:
            op: The id of the operation.
            request: The id of the request that asks now.
        """
        ...

    async def kill(self, op: str) -> None:
        """End the command's whole process tree. Does nothing if it is unknown or has ended.

        Args:
            op: The id of the operation that started the command.
        """
        ...

    async def kill_all(self) -> None:
        """End all commands, background ones too."""
        ...

    async def sessions(self) -> int:
        """How many commands are running."""
        ...

    async def read(
        self, path: str, rule: ResolveRule, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        """A part of a file.

        Args:
            path: The file.
            rule: Where the path may end up.
            offset: The first byte to read.
            limit: How many bytes to read at most; ``None`` reads to the end.

        Raises:
            NotFound: There is no such file.
            PathEscapes: The path leads out of the roots.
        """
        ...

    async def stat(self, path: str, rule: ResolveRule) -> Entry:
        """Follows links. ``path`` of the result is the resolved absolute path.

        Args:
            path: What to describe.
            rule: Where the path may end up.
        """
        ...

    async def list(self, path: str, rule: ResolveRule) -> list[Entry]:
        """A directory's entries, sorted; ``path`` is the name. Does not follow links.

        Args:
            path: The directory.
            rule: Where the path may end up.
        """
        ...

    async def make_dir(
        self, op: str, path: str, rule: ResolveRule, *, parents: bool = False
    ) -> None:
        """Make a directory.

        Args:
            op: The id of the operation.
            path: The new directory.
            rule: Where the path may end up.
            parents: Whether to make missing parents; a directory that exists is then no error.
        """
        ...

    async def remove(
        self, op: str, path: str, rule: ResolveRule, *, recursive: bool = False
    ) -> None:
        """Remove a file or a directory.

        Args:
            op: The id of the operation.
            path: What to remove.
            rule: Where the path may end up.
            recursive: Whether a directory may have contents.
        """
        ...

    async def move(self, op: str, source: str, target: str, rule: ResolveRule) -> None:
        """Move a file or a directory.

        Args:
            op: The id of the operation.
            source: What to move.
            target: The new path.
            rule: Where both paths may end up.
        """
        ...

    async def change(self, op: str, changes: Sequence[FileWrite], rule: ResolveRule) -> None:
        """Make all changes or none: staged first, then put in place; undone on failure.

        Parents are made. A link in the way is not followed out of the roots.

        Args:
            op: The id of the operation.
            changes: The changes, made in this order.
            rule: Where the paths may end up.
        """
        ...

    async def fill(self, op: str, entries: Sequence[FileWrite], rule: ResolveRule) -> None:
        """Lay out files, directories and links, each with its mode, where nothing is yet: quicker
        than :meth:`change`, but on failure the files laid out so far stay. Parents are made. A file
        that appeared in the place of an entry meanwhile is replaced.

        Args:
            op: The id of the operation.
            entries: What to lay out.
            rule: Where the paths may end up.
        """
        ...

    async def append(self, op: str, path: str, data: bytes, rule: ResolveRule, *, at: int) -> None:
        """Write the next part of a big file.

        Args:
            op: The id of the operation.
            path: The file.
            data: The part.
            rule: Where the path may end up.
            at: The offset of the part, which is the file's length so far.
        """
        ...

    def scan(self, exclude: Sequence[str], *, full: bool) -> AsyncIterator[ScanItem]:
        """What changed below the root.

        Unchanged files (by inode, size, ctime and mtime) are not read again. Sockets, fifos and
        devices are left out.

        Args:
            exclude: Paths relative to the root that are left out, with all below them.
            full: Whether to report everything, with digests but without the data of what has not
                changed; otherwise only the changes since the last scan of this object that ran to
                its end.

        Raises:
            ScanOutdated: Another object scanned since: a full scan is needed.
        """
        ...

    async def prime(self, entries: Sequence[Entry]) -> None:
        """Tell the box the digests of files that were just restored, so that a scan need not read
        them.

        Args:
            entries: The restored files, with their digests.
        """
        ...

    async def clear(self, op: str, keep: Sequence[str] = ()) -> None:
        """Empty the root, except for these relative paths.

        Args:
            op: The id of the operation.
            keep: The paths to keep, with all below them.
        """
        ...

    async def port(self, port: int) -> tuple[str, int]:
        """Where a declared port can be reached from the host: (host, port).

        Args:
            port: The port in the box.

        Raises:
            PortUnavailable: The port is not declared, or has no address.
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

        Raises:
            ProviderUnavailable: The provider cannot work here; the message says what to do about
                it.
        """
        ...

    async def create(self, spec: BoxSpec) -> Box:
        """A running, empty box. If a box with this key exists it is returned as it is.

        Args:
            spec: The box to make.
        """
        ...

    async def get(self, key: str) -> Box | None:
        """The running box; a stopped one is started again with its files. None: there is none.

        Args:
            key: The name of the box.
        """
        ...

    async def stop(self, key: str) -> None:
        """End all processes, keep the files.

        Args:
            key: The name of the box.
        """
        ...

    async def pause(self, key: str) -> None:
        """Freeze all processes; they take no CPU until :meth:`resume`.

        Args:
            key: The name of the box.
        """
        ...

    async def resume(self, key: str) -> None:
        """Let the processes of a paused box continue.

        Args:
            key: The name of the box.
        """
        ...

    async def delete(self, key: str) -> None:
        """End it and remove all traces. No error if there is none.

        Args:
            key: The name of the box.
        """
        ...

    async def list_owned(self, owner: str) -> list[BoxInfo]:
        """All boxes with this owner label, in any state. The state of a box may lag behind for a
        moment: an engine hears of a pause from its runtime, a vendor from the machine of the box.

        Args:
            owner: The installation that the boxes belong to.
        """
        ...

    async def fetch_git(
        self, box: Box, url: str, ref: str, target: str, *, public_only: bool = False
    ) -> None:
        """Clone a repository (shallow, no credentials) into a directory of the box, with network
        even if the box has none.

        Args:
            box: The box.
            url: The address of the repository.
            ref: The branch, tag or commit.
            target: The directory in the box.
            public_only: Whether to connect only to public addresses, also if a name has changed its
                meaning or a server redirects git.

        Raises:
            GitFailed: The repository cannot be cloned.
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
        """Hold a box that this process has not used. No error if there is none.

        Args:
            key: The name of the box.
        """
        ...

    async def stop_idle(self) -> None:
        """Before a process ends: end the boxes that it alone holds and in which nothing runs. Their
        files stay.
        """
        ...


@runtime_checkable
class Addresses(Protocol):
    """A provider that can say more of a port than :meth:`Box.port`, such as a signed URL."""

    async def address(self, box: Box, port: int) -> PortAddress:
        """Where the port is reached from outside.

        Args:
            box: The box.
            port: A declared port of it.
        """
        ...


@runtime_checkable
class Recalls(Protocol):
    """A provider that keeps nothing about its boxes: its caller tells what the log says."""

    def recall(self, spec: BoxSpec, vendor_id: str) -> None:
        """Note what the log says about a box, before any other call for this box.

        Args:
            spec: The specification with which the box was made.
            vendor_id: The vendor's own id; empty if it is not known.
        """
        ...
