"""The files of a session: single files by message, whole workspaces by snapshot and archive."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

from sandstream_bus.wire.sandboxes import (
    ApplyPatch,
    ApplyPlan,
    Checkpoint,
    Checkpointed,
    Content,
    ListDir,
    Listing,
    MakeDir,
    MovePath,
    Patched,
    PatchOperation,
    PathEntry,
    ReadFile,
    RemovePath,
    Restore,
    WriteFile,
    real_path,
    wire_path,
)
from sandstream_workspaces.archive_rules import ArchiveLimits
from sandstream_workspaces.archives import tar_of, tree_of_archive, tree_of_tar
from sandstream_workspaces.errors import ArchiveRejected

from sandstream.sandbox.config import SandboxArchiveLimits
from sandstream.sandbox.errors import (
    InvalidCompressionSchemeError,
    WorkspaceArchiveWriteError,
    WorkspaceWriteTypeError,
)
from sandstream.sandbox.files import EntryKind, FileEntry
from sandstream.sandbox.materialization import MaterializationResult
from sandstream.sandbox.plan import plan_of
from sandstream.sandbox.session.base_sandbox_session import AnyPath, BaseSandboxSession
from sandstream.sandbox.session.link import Remote
from sandstream.sandbox.session.manager import SessionEvents
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.utils import stream_length
from sandstream.sandbox.snapshot import BusSnapshot, NoopSnapshot
from sandstream.sandbox.types import Permissions, User
from sandstream.sandbox.workspace_paths import normalize_path

PART_BYTES = 8 * 1024 * 1024
"""Files are sent in parts of this size."""
_SPOOL_BYTES = 16 * 1024 * 1024
_SCHEMES = {
    "tar": "tar",
    "tar.gz": "tar.gz",
    "tgz": "tar.gz",
    "gz": "tar.gz",
    "tar.bz2": "tar.bz2",
    "bz2": "tar.bz2",
    "tar.xz": "tar.xz",
    "xz": "tar.xz",
    "zip": "zip",
}
_KINDS = {"file": EntryKind.FILE, "dir": EntryKind.DIRECTORY, "link": EntryKind.SYMLINK}


class WorkspaceSession(BaseSandboxSession):
    """The part of a session that handles files."""

    remote: Remote
    archive_limits: SandboxArchiveLimits | None
    _events: SessionEvents
    _root = ""

    @property
    def root(self) -> str:
        """The workspace's directory in the sandbox."""
        return self._root or self.state.manifest.root

    @root.setter
    def root(self, value: str) -> None:
        self._root = value

    def normalize_path(self, path: AnyPath, *, for_write: bool = False) -> Path:
        return normalize_path(
            path, self.root, self.state.manifest.extra_path_grants, for_write=for_write
        )

    def _inside(self, path: AnyPath, *, for_write: bool = False) -> str:
        """The path for a message: relative to the workspace if it is inside, because the root may
        be another directory after the sandbox was lost and restored, if the provider does not keep
        it.
        """
        found = PurePosixPath(self.normalize_path(path, for_write=for_write).as_posix())
        if found.is_relative_to(self.root):
            found = found.relative_to(self.root)
        return wire_path(found.as_posix())

    # --- single files --------------------------------------------------------------------------

    async def read(self, path: AnyPath, *, user: str | User | None = None) -> io.IOBase:
        # a big file is spooled to a temporary file
        async with self._events.operation("read", path=str(path), user=name_of(user) or None):
            inside = self._inside(path)
            found = await self._part(inside, 0, user)
            if len(found.data) >= found.size:
                return io.BytesIO(found.data)
            spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
            spool.write(found.data)
            while found.data and spool.tell() < found.size:
                found = await self._part(inside, spool.tell(), user)
                spool.write(found.data)
            spool.seek(0)
            return cast(io.IOBase, spool)

    async def _part(self, path: str, offset: int, user: str | User | None) -> Content:
        action = ReadFile(path=path, offset=offset, limit=PART_BYTES, user=name_of(user))
        return await self.remote.ask(action, Content)

    async def read_bounded(self, path: AnyPath, *, max_bytes: int) -> bytes:
        if max_bytes <= 0:
            raise ValueError(f"max_bytes must be positive; it is {max_bytes}")
        async with self._events.operation("read", path=str(path), max_bytes=max_bytes):
            inside = self._inside(path)
            data = b""
            while len(data) < max_bytes:
                limit = min(PART_BYTES, max_bytes - len(data))
                action = ReadFile(path=inside, offset=len(data), limit=limit)
                part = (await self.remote.ask(action, Content)).data
                data += part
                if len(part) < limit:
                    break
            return data

    async def read_ends(
        self, path: AnyPath, *, max_bytes: int, user: str | User | None = None
    ) -> tuple[bytes, bytes, int]:
        """The beginning, the end and the size of a file. Beginning and end are at most
        ``max_bytes`` long; the end is empty if the beginning is the whole file.

        Args:
            path: The file, relative to the root or absolute.
            max_bytes: How long the beginning and the end may be.
            user: Act as this account, if the provider has accounts.
        """
        async with self._events.operation("read", path=str(path), max_bytes=2 * max_bytes):
            inside, name = self._inside(path), name_of(user)
            action = ReadFile(path=inside, limit=max_bytes, user=name)
            head = await self.remote.ask(action, Content)
            if head.size <= len(head.data):
                return head.data, b"", head.size
            start = max(len(head.data), head.size - max_bytes)
            action = ReadFile(path=inside, offset=start, limit=max_bytes, user=name)
            tail = await self.remote.ask(action, Content)
            return head.data, tail.data, start + len(tail.data)

    async def write(
        self, path: AnyPath, data: io.IOBase, *, user: str | User | None = None
    ) -> None:
        told = {} if (size := stream_length(data)) is None else {"bytes": size}
        async with self._events.operation(
            "write", path=str(path), user=name_of(user) or None, **told
        ):
            inside = self._inside(path, for_write=True)
            part = self._bytes(path, data.read(PART_BYTES))
            await self.remote.ask(WriteFile(path=inside, data=part, user=name_of(user)))
            written = len(part)
            while len(part) == PART_BYTES:
                part = self._bytes(path, data.read(PART_BYTES))
                if part:
                    action = WriteFile(
                        path=inside, data=part, append_at=written, user=name_of(user)
                    )
                    await self.remote.ask(action)
                    written += len(part)

    def _bytes(self, path: AnyPath, part: object) -> bytes:
        if isinstance(part, bytes | bytearray | memoryview):
            return bytes(part)
        raise WorkspaceWriteTypeError(path=Path(path), actual_type=type(part).__name__)

    async def ls(self, path: AnyPath, *, user: str | User | None = None) -> list[FileEntry]:
        found = await self.remote.ask(ListDir(path=self._inside(path), user=name_of(user)), Listing)
        folder = PurePosixPath(self.normalize_path(path).as_posix())
        return [_file_entry(it, folder) for it in found.entries]

    async def mkdir(
        self, path: AnyPath, *, parents: bool = False, user: str | User | None = None
    ) -> None:
        inside = self._inside(path, for_write=True)
        await self.remote.ask(MakeDir(path=inside, parents=parents, user=name_of(user)))

    async def rm(
        self, path: AnyPath, *, recursive: bool = False, user: str | User | None = None
    ) -> None:
        inside = self._inside(path, for_write=True)
        await self.remote.ask(RemovePath(path=inside, recursive=recursive, user=name_of(user)))

    async def mv(
        self, source: AnyPath, destination: AnyPath, *, user: str | User | None = None
    ) -> None:
        action = MovePath(
            path=self._inside(source, for_write=True),
            target=self._inside(destination, for_write=True),
            user=name_of(user),
        )
        await self.remote.ask(action)

    async def same_file(
        self,
        left: AnyPath,
        right: AnyPath,
        *,
        follow_symlinks: bool = True,
        user: str | User | None = None,
    ) -> bool:
        test = "" if follow_symlinks else '[ ! -L "$1" ] && [ ! -L "$2" ] && '
        paths = [real_path(self._inside(path)) for path in (left, right)]
        command = ["sh", "-c", f'{test}[ "$1" -ef "$2" ]', "sh", *paths]
        return (await self.exec(*command, shell=False, user=user)).ok()

    async def apply_patch(
        self, operations: Any, *, patch_format: Any = "v4a", user: str | User | None = None
    ) -> str:
        if patch_format != "v4a":
            raise ValueError(f"unknown patch_format {patch_format!r}; use 'v4a'")
        items = operations if isinstance(operations, list | tuple) else [operations]
        action = ApplyPatch(operations=[_operation(it) for it in items], user=name_of(user))
        return (await self.remote.ask(action, Patched)).output

    # --- the workspace as a whole --------------------------------------------------------------

    async def persist_workspace(self) -> io.IOBase:
        root = {"workspace_root": self.root}
        async with self._events.operation("persist_workspace", **root) as finish:
            action = Checkpoint(exclude=sorted(self._skip_paths))
            saved = await self.remote.ask(action, Checkpointed)
            archive = await self._tar(saved.tree)
            if (size := stream_length(archive)) is not None:
                finish.data["bytes"] = size
            return archive

    async def _tar(self, tree: str) -> io.IOBase:
        store = await self.remote.link.store()
        spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
        async for part in tar_of(store, tree):
            spool.write(part)
        spool.seek(0)
        return cast(io.IOBase, spool)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Put the files of an archive into the workspace; other files there stay.

        Args:
            data: A binary stream of the archive.
        """
        told = {} if (size := stream_length(data)) is None else {"bytes": size}
        async with self._events.operation("hydrate_workspace", untar_dir=self.root, **told):
            store = await self.remote.link.store()
            try:
                tree = await tree_of_tar(store, _parts(data), limits=self._limits())
            except ArchiveRejected as error:
                raise _refused(self.root, error) from error
            await self.remote.ask(Restore(tree=tree, clear=False))

    async def extract(
        self,
        path: AnyPath,
        data: io.IOBase,
        *,
        compression_scheme: str | None = None,
        archive_limits: SandboxArchiveLimits | None = None,
    ) -> None:
        scheme = _scheme(path, compression_scheme)
        target = self.normalize_path(path, for_write=True)
        if compression_scheme is None or target.suffix:
            target = target.parent
        store = await self.remote.link.store()
        try:
            tree = await tree_of_archive(
                store,
                _parts(data),
                scheme=None if scheme == "tar" else scheme,  # with any compression
                limits=self._limits(
                    archive_limits or self.archive_limits or SandboxArchiveLimits()
                ),
                strict=True,
            )
        except ArchiveRejected as error:
            raise _refused(str(path), error) from error
        into = PurePosixPath(target.as_posix()).relative_to(self.root)
        await self.remote.ask(Restore(tree=tree, into=wire_path(into.as_posix()), clear=False))

    async def apply_manifest(self, *, only_ephemeral: bool = False) -> MaterializationResult:
        store = await self.remote.link.store()
        plan = await plan_of(self.state.manifest, store, only_ephemeral=only_ephemeral)
        await self.remote.ask(ApplyPlan(plan=plan, only_ephemeral=only_ephemeral))
        return MaterializationResult(files=[])

    def _limits(self, given: SandboxArchiveLimits | None = None) -> ArchiveLimits:
        given = given or self.archive_limits
        if given is None:
            return ArchiveLimits()
        return ArchiveLimits(
            max_input_bytes=given.max_input_bytes,
            max_extracted_bytes=given.max_extracted_bytes,
            max_members=given.max_members,
        )

    # --- snapshots of the caller's own ---------------------------------------------------------

    async def stored_tree(self) -> str:
        """The tree of a new sandbox: the last checkpoint, or the caller's snapshot."""
        state: SandboxSessionState = self.state
        snapshot = state.snapshot
        if isinstance(snapshot, BusSnapshot):
            return state.snapshot_fingerprint or snapshot.tree
        if isinstance(snapshot, NoopSnapshot):
            return ""
        if not await snapshot.restorable(dependencies=self._dependencies):
            return ""
        archive = await snapshot.restore(dependencies=self._dependencies)
        store = await self.remote.link.store()
        try:
            return await tree_of_tar(store, _parts(archive), limits=self._limits())
        except ArchiveRejected as error:
            raise _refused(self.root, error) from error
        finally:
            archive.close()

    async def export_snapshot(self) -> None:
        """Write the last checkpoint to the caller's own snapshot, if there is one."""
        snapshot = self.state.snapshot
        if isinstance(snapshot, BusSnapshot):
            tree = self.state.snapshot_fingerprint or ""
            self.state.snapshot = snapshot.model_copy(update={"tree": tree})
            return
        if isinstance(snapshot, NoopSnapshot) or not self.state.snapshot_fingerprint:
            return
        archive = await self._tar(self.state.snapshot_fingerprint)
        try:
            await snapshot.persist(archive, dependencies=self._dependencies)
        finally:
            archive.close()


async def _parts(data: io.IOBase) -> AsyncIterator[bytes]:
    """A stream in parts."""
    while part := data.read(PART_BYTES):
        if not isinstance(part, bytes):
            raise WorkspaceWriteTypeError(path=Path("archive"), actual_type=type(part).__name__)
        yield part


def name_of(user: str | User | None) -> str:
    return user.name if isinstance(user, User) else user or ""


def _file_entry(entry: PathEntry, folder: PurePosixPath) -> FileEntry:
    permissions = Permissions.from_mode(entry.mode)
    return FileEntry(
        path=str(folder / PurePosixPath(real_path(entry.path)).name),
        permissions=permissions.model_copy(update={"directory": entry.kind == "dir"}),
        owner=str(entry.uid),
        group=str(entry.gid),
        size=entry.size,
        kind=_KINDS.get(entry.kind, EntryKind.OTHER),
    )


def _operation(value: Any) -> PatchOperation:
    """An operation of a patch from an object or a dict."""

    def get(name: str) -> Any:
        return value.get(name) if isinstance(value, dict) else getattr(value, name, None)

    kind = get("type")
    if kind not in ("create_file", "update_file", "delete_file"):
        raise ValueError(
            f"a patch operation must have a type of create_file, update_file or delete_file, "
            f"not {kind!r}"
        )
    return PatchOperation(
        kind=kind,
        path=str(get("path")),
        diff=get("diff") or "",
        move_to=str(get("move_to") or ""),
    )


def _scheme(path: AnyPath, given: str | None) -> Any:
    name = (given or "".join(PurePosixPath(path).suffixes[-2:])).lower().lstrip(".")
    if name not in _SCHEMES and given is None:
        name = PurePosixPath(path).suffix.lower().lstrip(".")
    if name not in _SCHEMES:
        raise InvalidCompressionSchemeError(path=Path(path), scheme=given)
    return _SCHEMES[name]


def _refused(path: str, error: ArchiveRejected) -> WorkspaceArchiveWriteError:
    context: dict[str, object] = {"reason": error.reason, "member": error.member}
    message = f"could not write to the sandbox: {path}: {error}"
    if error.limit is not None:
        context |= {"limit": error.limit, "actual": error.actual}
        message += "; archive_limits=SandboxArchiveLimits(…) sets the limits"
    return WorkspaceArchiveWriteError(
        path=Path(path), context=context, cause=error, message=message
    )
