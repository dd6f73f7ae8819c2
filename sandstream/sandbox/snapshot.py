"""Where a session's workspace is stored when it stops.

A *spec* names the place and creates a new snapshot for each session. A *snapshot* is one stored
workspace. If it is given instead of a spec, its id is reused, so two sessions overwrite each other.
"""

from __future__ import annotations

import abc
import asyncio
import inspect
import io
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from sandstream.sandbox._registry import register_by_type
from sandstream.sandbox.errors import (
    SnapshotNotRestorableError,
    SnapshotPersistError,
    SnapshotRestoreError,
)
from sandstream.sandbox.session.dependencies import Dependencies

SnapshotClass = type["SnapshotBase"]


class _Typed(BaseModel):
    """A model that serializes its ``type`` even if defaults are excluded."""

    type: Any
    """A text; each subclass narrows it to its own literal."""

    @model_serializer(mode="wrap")
    def _with_type(self, handler: Any) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {**data, "type": self.type}


class SnapshotBase(_Typed, abc.ABC):
    """One stored workspace. Subclasses register by the default of their ``type``."""

    model_config = ConfigDict(frozen=True)

    id: str
    """The id of the snapshot."""
    _by_type: ClassVar[dict[str, SnapshotClass]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        register_by_type(SnapshotBase._by_type, cls, "snapshot")

    @classmethod
    def parse(cls, payload: object) -> SnapshotBase:
        """Make a snapshot from its serialized form.

        Args:
            payload: A snapshot, which is returned unchanged, or a dict with its ``type``.

        Returns:
            The snapshot.

        Raises:
            TypeError: ``payload`` is neither.
            ValueError: The ``type`` is unknown, or a field is wrong.
        """
        if isinstance(payload, SnapshotBase):
            return payload
        if not isinstance(payload, dict):
            raise TypeError(f"a snapshot must be a SnapshotBase or a dict, not {type(payload)}")
        snapshot_class = SnapshotBase._by_type.get(str(payload.get("type")))
        if snapshot_class is None:
            known = ", ".join(sorted(SnapshotBase._by_type))
            raise ValueError(f"unknown snapshot type {payload.get('type')!r}; known: {known}")
        return snapshot_class.model_validate(payload)

    @abc.abstractmethod
    async def persist(self, data: io.IOBase, *, dependencies: Dependencies | None = None) -> None:
        """Store the workspace.

        Args:
            data: The workspace as a tar archive.
            dependencies: The dependencies of the session.

        Raises:
            SnapshotPersistError: The archive could not be stored.
        """

    @abc.abstractmethod
    async def restore(self, *, dependencies: Dependencies | None = None) -> io.IOBase:
        """Open the stored workspace.

        Args:
            dependencies: The dependencies of the session.

        Returns:
            The tar archive. The caller closes it.

        Raises:
            SnapshotRestoreError: The archive could not be read.
        """

    @abc.abstractmethod
    async def restorable(self, *, dependencies: Dependencies | None = None) -> bool:
        """Whether there is an archive to restore.

        Args:
            dependencies: The dependencies of the session.

        Returns:
            True if :meth:`restore` can succeed.
        """


class LocalSnapshot(SnapshotBase):
    """A tar file ``<id>.tar`` in a directory of the caller's machine."""

    type: Literal["local"] = "local"
    base_path: Path
    """The directory."""

    async def persist(self, data: io.IOBase, *, dependencies: Dependencies | None = None) -> None:
        path = self._path()
        try:
            await asyncio.to_thread(_write_atomically, path, data)
        except OSError as error:
            raise SnapshotPersistError(snapshot_id=self.id, path=path, cause=error) from error

    async def restore(self, *, dependencies: Dependencies | None = None) -> io.IOBase:
        path = self._path()
        try:
            return await asyncio.to_thread(path.open, "rb")
        except OSError as error:
            raise SnapshotRestoreError(snapshot_id=self.id, path=path, cause=error) from error

    async def restorable(self, *, dependencies: Dependencies | None = None) -> bool:
        return await asyncio.to_thread(self._path().is_file)

    def _path(self) -> Path:
        names = {PurePosixPath(self.id).name, PureWindowsPath(self.id).name}
        if names != {self.id} or self.id in ("", ".", ".."):
            raise ValueError(f"id of a LocalSnapshot must be one path segment, not {self.id!r}")
        return self.base_path / f"{self.id}.tar"


def _write_atomically(path: Path, data: io.IOBase) -> None:
    """Write so that a reader sees the old file or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with unfinished.open("wb") as file:
            shutil.copyfileobj(cast(Any, data), file)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


class NoopSnapshot(SnapshotBase):
    """Stores nothing."""

    type: Literal["noop"] = "noop"

    async def persist(self, data: io.IOBase, *, dependencies: Dependencies | None = None) -> None:
        return None

    async def restore(self, *, dependencies: Dependencies | None = None) -> io.IOBase:
        raise SnapshotNotRestorableError(snapshot_id=self.id, path=Path("<noop>"))

    async def restorable(self, *, dependencies: Dependencies | None = None) -> bool:
        return False


class BusSnapshot(SnapshotBase):
    """A checkpoint in the object store.

    The sandbox actor writes and reads it, so no file data passes through the caller.
    """

    type: Literal["bus"] = "bus"
    tree: str = ""
    """The digest of the checkpoint; empty until the first one."""

    async def persist(self, data: io.IOBase, *, dependencies: Dependencies | None = None) -> None:
        cause = TypeError("a BusSnapshot is made by the sandbox actor, not from a stream")
        raise SnapshotPersistError(snapshot_id=self.id, path=self._place(), cause=cause)

    async def restore(self, *, dependencies: Dependencies | None = None) -> io.IOBase:
        if not self.tree:
            raise SnapshotNotRestorableError(snapshot_id=self.id, path=self._place())
        cause = TypeError("a BusSnapshot is restored by the sandbox actor, not as a stream")
        raise SnapshotRestoreError(snapshot_id=self.id, path=self._place(), cause=cause)

    async def restorable(self, *, dependencies: Dependencies | None = None) -> bool:
        return bool(self.tree)

    def _place(self) -> Path:
        return Path(f"<bus:{self.tree}>")


class RemoteSnapshot(SnapshotBase):
    """Stored by an object from the session's dependencies with the methods ``upload(id, stream)``,
    ``download(id)`` and ``exists(id)``, each sync or async.
    """

    type: Literal["remote"] = "remote"
    client_dependency_key: str
    """The key of that object among the dependencies."""

    async def persist(self, data: io.IOBase, *, dependencies: Dependencies | None = None) -> None:
        try:
            await self._call("upload", dependencies, data)
        except Exception as error:
            raise SnapshotPersistError(
                snapshot_id=self.id, path=self._place(), cause=error
            ) from error

    async def restore(self, *, dependencies: Dependencies | None = None) -> io.IOBase:
        try:
            stream = await self._call("download", dependencies)
            if not isinstance(stream, io.IOBase):
                raise TypeError(f"download() must give a stream (io.IOBase), not {type(stream)}")
        except Exception as error:
            raise SnapshotRestoreError(
                snapshot_id=self.id, path=self._place(), cause=error
            ) from error
        return stream

    async def restorable(self, *, dependencies: Dependencies | None = None) -> bool:
        return bool(await self._call("exists", dependencies))

    async def _call(
        self, method_name: str, dependencies: Dependencies | None, *arguments: object
    ) -> object:
        if dependencies is None:
            raise RuntimeError(
                f"RemoteSnapshot {self.id!r} needs the session's dependencies, which hold "
                f"`{self.client_dependency_key}`"
            )
        client = await dependencies.require(self.client_dependency_key, consumer="RemoteSnapshot")
        method = getattr(client, method_name, None)
        if not callable(method):
            raise TypeError(f"{type(client).__name__} must have a method {method_name}(id, ...)")
        result = cast("Callable[..., object]", method)(self.id, *arguments)
        return await result if inspect.isawaitable(result) else result

    def _place(self) -> Path:
        return Path(f"<remote:{self.client_dependency_key}>")


class SnapshotSpec(_Typed, abc.ABC):
    """Where the snapshots of new sessions are stored."""

    @abc.abstractmethod
    def build(self, snapshot_id: str) -> SnapshotBase:
        """Make the snapshot of a new session.

        Args:
            snapshot_id: The id of the snapshot.

        Returns:
            The snapshot.
        """


class LocalSnapshotSpec(SnapshotSpec):
    """Snapshots in a directory of this machine.

    Example:
        SandboxRunConfig(client=client, snapshot=LocalSnapshotSpec(base_path="snapshots"))
    """

    type: Literal["local"] = "local"
    base_path: Path
    """The directory; it is created if it is missing."""

    def build(self, snapshot_id: str) -> SnapshotBase:
        return LocalSnapshot(id=snapshot_id, base_path=self.base_path)


class NoopSnapshotSpec(SnapshotSpec):
    type: Literal["noop"] = "noop"

    def build(self, snapshot_id: str) -> SnapshotBase:
        return NoopSnapshot(id=snapshot_id)


class BusSnapshotSpec(SnapshotSpec):
    """Checkpoints in the object store; the default for sessions."""

    type: Literal["bus"] = "bus"
    tree: str = ""
    """The checkpoint to start from, if any."""

    def build(self, snapshot_id: str) -> SnapshotBase:
        return BusSnapshot(id=snapshot_id, tree=self.tree)


class RemoteSnapshotSpec(SnapshotSpec):
    """Snapshots that your own object stores, see :class:`RemoteSnapshot`.

    Example:
        client = UnixLocalSandboxClient(dependencies=Dependencies.with_values({"store": store}))
        session = await client.create(snapshot=RemoteSnapshotSpec(client_dependency_key="store"))
    """

    type: Literal["remote"] = "remote"
    client_dependency_key: str
    """The key of that object among the session's dependencies."""

    def build(self, snapshot_id: str) -> SnapshotBase:
        return RemoteSnapshot(id=snapshot_id, client_dependency_key=self.client_dependency_key)


SnapshotSpecUnion = Annotated[
    LocalSnapshotSpec | NoopSnapshotSpec | RemoteSnapshotSpec | BusSnapshotSpec,
    Field(discriminator="type"),
]


def resolve_snapshot(spec: SnapshotBase | SnapshotSpec | None, snapshot_id: str) -> SnapshotBase:
    """The snapshot of a session.

    Args:
        spec: A snapshot, which is returned unchanged, or a spec to build one from; ``None`` is a
            :class:`BusSnapshotSpec`.
        snapshot_id: The id of a new snapshot.

    Returns:
        The snapshot.
    """
    if isinstance(spec, SnapshotBase):
        return spec
    return (BusSnapshotSpec() if spec is None else spec).build(snapshot_id)
