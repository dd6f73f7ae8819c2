"""Snapshots of host directories and of given files, and looking into snapshots."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from sandstream_workspaces import host_directory
from sandstream_workspaces.errors import HostDirectoryFailed, NoSuchPath
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer, open_bus
from workspaces.files import fill, fill_with_everything, holds

MB = 1024 * 1024


async def joined(store: WorkspaceStore, tree: str, path: str) -> bytes:
    return b"".join([piece async for piece in store.read_file(tree, path)])


def test_a_host_directory(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            source = tmp_path / "source"
            fill_with_everything(source)
            fill(source, {"big": os.urandom(20 * MB)})
            os.mkfifo(source / "pipe")
            store = WorkspaceStore(bus)
            tree = await store.add_directory(source, symlinks="keep")
            (source / "pipe").unlink()
            found = holds(source)
            entries = {os.fsencode(it.path): it for it in await store.entries(tree)}
            assert entries.keys() == found.keys()
            for path, it in found.items():
                entry = entries[path]
                assert entry.kind == it.kind
                if it.kind == "file":
                    assert entry.mode == it.mode
                    assert await joined(store, tree, os.fsdecode(path)) == it.content
                elif it.kind == "link":
                    assert os.fsencode(entry.target) == it.content
            without = await store.add_directory(source, symlinks="skip")
            difference = await store.diff(tree, without)
            assert len(difference.removed) == 5 and not difference.added + difference.changed
            with pytest.raises(HostDirectoryFailed) as raised:
                await store.add_directory(source)
            assert raised.value.reason == "symlink_not_supported"

    asyncio.run(main())


def test_what_has_not_changed_is_not_read_again(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bytes] = []
    really = host_directory._opened

    def recording(root: Path, path: bytes):  # type: ignore[no-untyped-def]
        opened.append(path)
        return really(root, path)

    monkeypatch.setattr(host_directory, "_opened", recording)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            fill(tmp_path / "s", {"a": b"1", "b/c": b"2", "empty": b"", "big": os.urandom(9 * MB)})
            store = WorkspaceStore(bus)
            await asyncio.sleep(0.05)  # files younger than a tick of the clock are not trusted
            first = await store.add_directory(tmp_path / "s")
            assert sorted(opened) == [b"a", b"b/c", b"big", b"empty"]
            opened.clear()
            assert await store.add_directory(tmp_path / "s") == first
            assert opened == []
            fill(tmp_path / "s", {"b/c": b"3"})
            second = await store.add_directory(tmp_path / "s")
            assert opened == [b"b/c"]
            assert (await store.diff(first, second)).changed == ["b/c"]

    asyncio.run(main())


@pytest.mark.parametrize("size", [100, 9 * MB])
def test_a_host_file_that_changes_while_it_is_read(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    really = os.fstat
    looks = 0

    def touching(file: int) -> os.stat_result:
        nonlocal looks
        looks += 1
        if looks == 2:  # between the look before reading and the one after it
            (tmp_path / "s" / "file").write_bytes(bytes(size))
        return really(file)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            fill(tmp_path / "s", {"file": os.urandom(size)})
            monkeypatch.setattr(f"{host_directory.__name__}.os.fstat", touching)
            with pytest.raises(HostDirectoryFailed, match=r"'file'.*changed") as raised:
                await WorkspaceStore(bus).add_directory(tmp_path / "s")
            assert raised.value.reason == "changed"

    asyncio.run(main())


def test_a_host_directory_that_is_none(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            store = WorkspaceStore(bus)
            (tmp_path / "file").write_bytes(b"")
            (tmp_path / "link").symlink_to(tmp_path)
            for name, reason in [
                ("missing", "not_readable"),
                ("file", "wrong_kind"),
                ("link", "wrong_kind"),
            ]:
                with pytest.raises(HostDirectoryFailed) as raised:
                    await store.add_directory(tmp_path / name)
                assert raised.value.reason == reason
            (tmp_path / "empty").mkdir()
            assert await store.entries(await store.add_directory(tmp_path / "empty")) == []

    asyncio.run(main())


def test_looking_into_a_snapshot(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            store = WorkspaceStore(bus)
            files = [(f"d{i % 7}/f{i}", str(i).encode(), 0o644) for i in range(1000)]
            files.append(("d1/deep/er", b"x", 0o755))
            tree = await store.add_files(files)
            for path, data, mode in files[::50]:
                entry = await store.lookup(tree, path)
                assert entry is not None
                assert (entry.kind, entry.mode, entry.size) == ("file", mode, len(data))
                assert await joined(store, tree, path) == data
            directory = await store.lookup(tree, "/d1/deep/")
            assert directory is not None and directory.kind == "dir"
            assert await store.lookup(tree, "d1/nothing") is None
            assert await store.lookup(tree, "") is None
            for path in ("d1", "d1/nothing"):
                with pytest.raises(NoSuchPath):
                    await joined(store, tree, path)
            part = await store.subtree(tree, "d1")
            expected = [
                (path[3:], data, mode) for path, data, mode in files if path.startswith("d1/")
            ]
            assert part == await store.add_files(expected)
            assert await store.subtree(tree, "") == tree
            with pytest.raises(NoSuchPath):
                await store.subtree(tree, "d1/f1")
            with pytest.raises(NoSuchPath):
                await store.subtree(tree, "d9")

    asyncio.run(main())


def test_snapshots_that_have_nothing_in_common(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            store = WorkspaceStore(bus)
            empty = await store.add_files([])
            tree = await store.add_files([("a/b", b"1", 0o644)])
            found = await store.diff(empty, tree)
            assert (found.added, found.changed, found.removed) == (["a", "a/b"], [], [])
            found = await store.diff(tree, empty)
            assert (found.added, found.changed, found.removed) == ([], [], ["a", "a/b"])
            mode = await store.add_files([("a/b", b"1", 0o755)])
            assert (await store.diff(tree, mode)).changed == ["a/b"]

    asyncio.run(main())
