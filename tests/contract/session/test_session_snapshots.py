"""Where workspaces are kept: the bus, a directory, an object of the caller's, nowhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from contract.sessions import SessionStage, content, refused, said, write

from sandstream.sandbox.entries import File
from sandstream.sandbox.errors import SnapshotPersistError, SnapshotRestoreError
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.session.dependencies import (
    Dependencies,
    DependenciesMissingDependencyError,
)
from sandstream.sandbox.snapshot import (
    BusSnapshot,
    LocalSnapshot,
    LocalSnapshotSpec,
    NoopSnapshotSpec,
    RemoteSnapshotSpec,
    SnapshotSpec,
)


class Shelf:
    """Somebody's object store."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def upload(self, name: str, stream: io.IOBase) -> None:
        self.kept[name] = stream.read()

    def download(self, name: str) -> io.BytesIO:
        return io.BytesIO(self.kept[name])

    async def exists(self, name: str) -> bool:
        return name in self.kept


@pytest.mark.parametrize("kind", ["bus", "local", "remote"])
def test_a_new_sandbox_starts_from_the_snapshot(
    sessions: SessionStage, kind: str, tmp_path: Path
) -> None:
    shelf = Shelf()
    specs: dict[str, SnapshotSpec | None] = {
        "bus": None,
        "local": LocalSnapshotSpec(base_path=tmp_path / "snapshots"),
        "remote": RemoteSnapshotSpec(client_dependency_key="shelf"),
    }

    async def story() -> None:
        client = sessions.client(Dependencies.with_values({"shelf": shelf}))
        manifest = Manifest(entries={"given": File(content=b"given")})
        async with sessions.fresh(client, snapshot=specs[kind], manifest=manifest) as session:
            await said(session, "echo mine > file; ln -s file link; rm given; chmod 700 file")
            await session.aclose()
            state = client.deserialize_session_state(client.serialize_session_state(session.state))
            assert state.snapshot.id == session.state.snapshot.id
            await client.delete(session)
        resumed = await client.resume(state)
        await resumed.start()
        assert await said(resumed, "cat link; ls; stat -c %a file") == "mine\nfile\nlink\n700\n"
        await client.delete(resumed)
        # and as what somebody else starts from
        async with sessions.fresh(client, snapshot=state.snapshot) as other:
            assert await said(other, "cat link; ls") == "mine\nfile\nlink\n"

    sessions.run(story())
    if kind == "local":
        assert [path.suffix for path in (tmp_path / "snapshots").iterdir()] == [".tar"]


def test_without_snapshots_a_new_sandbox_is_made_anew(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        manifest = Manifest(entries={"given": File(content=b"given")})
        async with sessions.fresh(
            client, snapshot=NoopSnapshotSpec(), manifest=manifest
        ) as session:
            await write(session, "file", b"mine")
            await session.stop()
            await client.delete(session)
            resumed = await client.resume(session.state)
            await resumed.start()
            assert await said(resumed, "ls; cat given") == "given\ngiven"
            await client.delete(resumed)

    sessions.run(story())


def test_a_snapshot_that_cannot_be_kept_or_had(sessions: SessionStage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    class Broken:
        def upload(self, name: str, stream: io.IOBase) -> None:
            raise OSError("no")

        def exists(self, name: str) -> bool:
            return True

        def download(self, name: str) -> str:
            return "no stream"

    async def story() -> None:
        local = LocalSnapshotSpec(base_path=tmp_path / "file")
        async with sessions.fresh(snapshot=local) as session:
            with refused(SnapshotPersistError, "snapshot_persist_error"):
                await session.stop()
            assert (await session.exec("true")).ok()
        client = sessions.client(Dependencies.with_values({"broken": Broken()}))
        remote = RemoteSnapshotSpec(client_dependency_key="broken")
        session = sessions.unmade(client, snapshot=remote)
        with refused(SnapshotRestoreError, "snapshot_restore_error"):
            await session.start()
        nobody = sessions.unmade(
            client, snapshot=RemoteSnapshotSpec(client_dependency_key="nobody")
        )
        with pytest.raises(DependenciesMissingDependencyError, match="nobody"):
            await nobody.start()

    sessions.run(story())


def test_a_snapshot_file_that_is_no_archive(sessions: SessionStage, tmp_path: Path) -> None:
    (tmp_path / "bad.tar").write_bytes(b"no archive" * 200)

    async def story() -> None:
        snapshot = LocalSnapshot(id="bad", base_path=tmp_path)
        session = sessions.unmade(snapshot=snapshot)
        with pytest.raises(Exception) as caught:
            await session.start()
        assert getattr(caught.value, "code", "") == "workspace_archive_write_error"
        assert not await session.running()

    sessions.run(story())


def test_the_bus_keeps_what_did_not_change_once(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await write(session, "file", b"1")
            first = await session.checkpoint()
            assert await session.checkpoint() == first
            await write(session, "file", b"2")
            second = await session.checkpoint()
            assert second != first
            await session.stop()
            assert isinstance(session.state.snapshot, BusSnapshot)
            assert session.state.snapshot.tree == second
            old = BusSnapshot(id="old", tree=first)
            async with sessions.fresh(snapshot=old) as other:
                assert await content(other, "file") == b"1"

    sessions.run(story())


def test_ephemeral_entries_are_not_kept_but_laid_out_again(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        manifest = Manifest(
            entries={
                "fleeting": File(content=b"fresh", ephemeral=True),
                "kept": File(content=b"given"),
            }
        )
        async with sessions.fresh(client, manifest=manifest) as session:
            await said(session, "echo changed > fleeting; echo changed > kept")
            session.register_persist_workspace_skip_path("skipped")
            await write(session, "skipped", b"x")
            archive = await session.persist_workspace()
            assert b"fleeting" not in archive.read()
            archive.close()
            await session.aclose()
            await session.start()
            assert await said(session, "cat fleeting; cat kept; ls") == (
                "freshchanged\nfleeting\nkept\n"
            )

    sessions.run(story())
