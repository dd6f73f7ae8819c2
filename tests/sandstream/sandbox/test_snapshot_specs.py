"""Snapshots: files, remote clients, checkpoints in the store; and the dependencies they use."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from sandstream.sandbox.errors import (
    SnapshotNotRestorableError,
    SnapshotPersistError,
    SnapshotRestoreError,
)
from sandstream.sandbox.session.dependencies import (
    Dependencies,
    DependenciesBindingError,
    DependenciesError,
    DependenciesMissingDependencyError,
)
from sandstream.sandbox.snapshot import (
    BusSnapshot,
    BusSnapshotSpec,
    LocalSnapshot,
    LocalSnapshotSpec,
    NoopSnapshot,
    NoopSnapshotSpec,
    RemoteSnapshotSpec,
    SnapshotBase,
    resolve_snapshot,
)
from sandstream.sandbox.snapshot_defaults import (
    cleanup_stale_default_local_snapshots,
    default_local_snapshot_base_dir,
    resolve_default_local_snapshot_spec,
)


def test_a_spec_makes_a_snapshot_and_a_snapshot_stays_itself(tmp_path: Path) -> None:
    local = resolve_snapshot(LocalSnapshotSpec(base_path=tmp_path), "id")
    assert local == LocalSnapshot(id="id", base_path=tmp_path)
    assert resolve_snapshot(local, "other") is local
    assert resolve_snapshot(None, "id") == BusSnapshot(id="id")
    assert resolve_snapshot(NoopSnapshotSpec(), "id") == NoopSnapshot(id="id")
    assert BusSnapshotSpec(tree="t").build("id") == BusSnapshot(id="id", tree="t")


def test_a_local_snapshot_is_a_file_that_is_whole_or_absent(tmp_path: Path) -> None:
    async def scenario() -> None:
        snapshot = LocalSnapshot(id="s", base_path=tmp_path / "new")
        assert not await snapshot.restorable()
        with pytest.raises(SnapshotRestoreError):
            await snapshot.restore()
        await snapshot.persist(io.BytesIO(b"first"))
        with pytest.raises(SnapshotPersistError) as caught:
            await snapshot.persist(Failing(b"second"))
        assert isinstance(caught.value.cause, OSError)
        assert await snapshot.restorable()
        with await snapshot.restore() as stream:
            assert stream.read() == b"first"
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["s.tar"]

    asyncio.run(scenario())


class Failing(io.BytesIO):
    """Gives a part and then fails."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 0:
            raise OSError("gone")
        return super().read(3)


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "a\\b", "a/", "C:x"])
def test_the_id_of_a_local_snapshot_is_one_segment(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one path segment"):
        asyncio.run(LocalSnapshot(id=name, base_path=tmp_path).restorable())


def test_snapshots_are_read_back_by_type() -> None:
    for snapshot in (
        LocalSnapshot(id="a", base_path=Path("/x")),
        NoopSnapshot(id="b"),
        BusSnapshot(id="c", tree="t"),
    ):
        assert SnapshotBase.parse(snapshot.model_dump(mode="json", exclude_unset=True)) == snapshot
    with pytest.raises(ValueError, match="unknown snapshot type 'zz'"):
        SnapshotBase.parse({"type": "zz"})
    with pytest.raises(TypeError, match="dict"):
        SnapshotBase.parse(3)
    with pytest.raises(TypeError, match="must give `type` a default"):
        type("Nameless", (NoopSnapshot,), {"__annotations__": {"type": str}, "type": ""})


def test_what_keeps_nothing_cannot_be_restored() -> None:
    with pytest.raises(SnapshotNotRestorableError):
        asyncio.run(NoopSnapshot(id="a").restore())
    with pytest.raises(SnapshotNotRestorableError):
        asyncio.run(BusSnapshot(id="a").restore())
    assert asyncio.run(BusSnapshot(id="a", tree="t").restorable())
    assert not asyncio.run(BusSnapshot(id="a").restorable())


class Client:
    """Has an async upload and plain other methods: both are allowed."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.closed = 0

    async def upload(self, snapshot_id: str, data: io.IOBase) -> None:
        self.stored[snapshot_id] = data.read()

    def download(self, snapshot_id: str) -> object:
        stored = self.stored.get(snapshot_id)
        return "no stream" if stored is None else io.BytesIO(stored)

    def exists(self, snapshot_id: str) -> bool:
        return snapshot_id in self.stored

    async def aclose(self) -> None:
        self.closed += 1


def test_a_remote_snapshot_uses_a_client_of_the_session() -> None:
    async def scenario() -> None:
        snapshot = RemoteSnapshotSpec(client_dependency_key="store").build("s")
        dependencies = Dependencies.with_values({"store": Client()})
        with pytest.raises(SnapshotRestoreError) as caught:
            await snapshot.restore(dependencies=dependencies)
        assert isinstance(caught.value.cause, TypeError)
        assert not await snapshot.restorable(dependencies=dependencies)
        await snapshot.persist(io.BytesIO(b"data"), dependencies=dependencies)
        assert await snapshot.restorable(dependencies=dependencies)
        assert (await snapshot.restore(dependencies=dependencies)).read() == b"data"
        with pytest.raises(SnapshotPersistError):
            await snapshot.persist(io.BytesIO(b""), dependencies=Dependencies())
        with pytest.raises(RuntimeError, match="dependencies"):
            await snapshot.restorable()

    asyncio.run(scenario())


def test_a_factory_runs_once_for_all_and_its_result_is_closed() -> None:
    async def scenario() -> None:
        made: list[Client] = []

        async def make(dependencies: Dependencies) -> Client:
            await asyncio.sleep(0)
            made.append(Client())
            return made[-1]

        template = Dependencies().bind_factory("c", make, owns_result=True)
        session = template.clone()
        first, second = await asyncio.gather(session.require("c"), session.require("c"))
        assert first is second
        await asyncio.gather(session.aclose(), session.aclose())
        assert [client.closed for client in made] == [1]
        with pytest.raises(DependenciesError, match="closed"):
            await session.get("c")
        assert await template.get("c") is made[1]
        await template.aclose()

    asyncio.run(scenario())


def test_dependencies_are_bound_once_and_missing_ones_are_named() -> None:
    async def scenario() -> None:
        dependencies = Dependencies().bind_value("a", 1)
        with pytest.raises(DependenciesBindingError):
            dependencies.bind_value("a", 2)
        with pytest.raises(ValueError, match="empty"):
            dependencies.bind_value("", 2)
        assert await dependencies.bind_value("a", 2, overwrite=True).get("a") == 2
        assert await dependencies.get("b") is None
        with pytest.raises(DependenciesMissingDependencyError, match=r"`b` \(needed by me\)"):
            await dependencies.require("b", consumer="me")

    asyncio.run(scenario())


def test_a_factory_that_fails_is_tried_again_and_one_that_is_rebound_is_not_used() -> None:
    async def scenario() -> None:
        attempts: list[int] = []

        def flaky(dependencies: Dependencies) -> Any:
            attempts.append(1)
            if len(attempts) == 1:
                raise OSError("first")
            return "value"

        dependencies = Dependencies().bind_factory("f", flaky)
        with pytest.raises(OSError, match="first"):
            await dependencies.get("f")
        assert await dependencies.get("f") == "value"

        started = asyncio.Event()

        async def slow(dependencies: Dependencies) -> str:
            started.set()
            await asyncio.Event().wait()
            return "never"

        dependencies.bind_factory("s", slow)
        waiting = asyncio.create_task(dependencies.get("s"))
        await started.wait()
        dependencies.bind_value("s", "now", overwrite=True)
        with pytest.raises(DependenciesBindingError, match="bound again"):
            await waiting
        assert await dependencies.get("s") == "now"
        await dependencies.aclose()

    asyncio.run(scenario())


def test_the_default_directory_for_snapshots(tmp_path: Path) -> None:
    folder = Path("sandstream/sandbox/snapshots")
    home = tmp_path / "home"
    assert default_local_snapshot_base_dir(home=home, env={}, platform="linux") == (
        home / ".local/state" / folder
    )
    assert default_local_snapshot_base_dir(
        home=home, env={"XDG_STATE_HOME": "/state"}, platform="linux"
    ) == (Path("/state") / folder)
    assert default_local_snapshot_base_dir(
        home=home, env={"XDG_STATE_HOME": "rel"}, platform="darwin"
    ) == (home / "Library/Application Support" / folder)
    spec = resolve_default_local_snapshot_spec(home=home, env={}, platform="linux")
    assert spec.base_path.stat().st_mode & 0o777 == 0o700
    for name in ("old.tar", "new.tar", "old.txt"):
        (spec.base_path / name).write_bytes(b"")
    month_later = (spec.base_path / "old.tar").stat().st_mtime + 31 * 24 * 3600
    cleanup_stale_default_local_snapshots(spec.base_path, now=month_later - 2 * 24 * 3600)
    assert len(list(spec.base_path.iterdir())) == 3
    cleanup_stale_default_local_snapshots(spec.base_path, now=month_later)
    assert [path.name for path in spec.base_path.iterdir()] == ["old.txt"]
