"""Workspaces written down and laid out again: nothing lost, nothing stored twice."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import msgspec
import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.nats import objects
from sandstream_bus.nats.direct import stale_many
from sandstream_workspaces import compaction, freshness
from sandstream_workspaces.errors import WorkspaceDamaged
from sandstream_workspaces.format import starts_segment
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer, open_bus
from workspaces.boxes import open_box
from workspaces.files import fill, fill_with_everything, holds, random_change

MB = 1024 * 1024


async def stored_bytes(bus: Bus) -> int:
    state = await bus.topology.stream_state(bus.connection, f"OBJ_{bus.topology.bucket}")
    return int(state["bytes"])


async def purge(bus: Bus, subject: str) -> None:
    await bus.connection.request(
        f"$JS.API.STREAM.PURGE.OBJ_{bus.topology.bucket}",
        msgspec.json.encode({"filter": subject}),
    )


def test_everything_comes_back_as_it_was(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server) as bus,
            open_box(tmp_path / "one") as one,
            open_box(tmp_path / "two") as two,
        ):
            fill_with_everything(Path(one.root))
            before = holds(Path(one.root))
            snapshot = await WorkspaceStore(bus).checkpoint(one, exclude=[])
            fill(Path(two.root), {"was/here": b"before"})
            laid_out = await WorkspaceStore(bus).restore(two, snapshot.tree, op="r1")
            assert holds(Path(two.root)) == before
            assert laid_out == len(before)
            assert snapshot.files == sum(it.kind == "file" for it in before.values())
            assert snapshot.size_bytes == sum(
                len(it.content) for it in before.values() if it.kind == "file"
            )

    asyncio.run(main())


def test_a_big_file_and_many_small_ones(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server) as bus,
            open_box(tmp_path / "one") as one,
            open_box(tmp_path / "two") as two,
        ):
            small = {f"d{i % 50}/f{i}": f"content {i}".encode() for i in range(5000)}
            fill(Path(one.root), {"big": os.urandom(40 * MB), **small})
            store = WorkspaceStore(bus)
            snapshot = await store.checkpoint(one, exclude=[])
            assert snapshot.files == 5001
            await WorkspaceStore(bus).restore(two, snapshot.tree, op="r1")
            assert holds(Path(two.root)) == holds(Path(one.root))
            pieces = [piece async for piece in store.read_file(snapshot.tree, "big")]
            assert b"".join(pieces) == (Path(one.root) / "big").read_bytes()
            assert len(pieces) > 1

    asyncio.run(main())


def test_equal_files_have_an_equal_digest(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server) as bus,
            open_box(tmp_path / "one") as one,
            open_box(tmp_path / "two") as two,
        ):
            store = WorkspaceStore(bus)
            for box in (one, two):
                fill(Path(box.root), {f"f{i}": str(i).encode() for i in range(600)})
            first = await store.checkpoint(one, exclude=[])
            assert await store.checkpoint(two, exclude=[]) == msgspec.structs.replace(
                first, new_bytes=0
            )
            fill(Path(two.root), {"f1": b"else"})
            other = await store.checkpoint(two, base=first.tree, exclude=[])
            assert other.tree != first.tree and other.content != first.content
            fill(Path(two.root), {"f1": b"1"})
            again = await store.checkpoint(two, base=other.tree, exclude=[])
            assert (again.tree, again.content) == (first.tree, first.content)
            # another process packs differently if it starts from another state: same content
            fill(Path(one.root), {f"f{i}": b"for a moment" for i in range(300)})
            strange = WorkspaceStore(bus)
            moment = await strange.checkpoint(one, exclude=[])
            fill(Path(one.root), {f"f{i}": str(i).encode() for i in range(300)})
            later = await strange.checkpoint(one, base=moment.tree, exclude=[])
            assert later.content == first.content
            assert (await store.diff(first.tree, later.tree)).changed == []

    asyncio.run(main())


def test_a_checkpoint_stores_only_what_changed(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {f"d{i % 20}/f{i}": os.urandom(4000) for i in range(2000)})
            store = WorkspaceStore(bus)
            first = await store.checkpoint(one, exclude=[])
            assert first.new_bytes > 8_000_000
            before = await stored_bytes(bus)
            fill(root, {"d3/f3": b"changed"})
            second = await store.checkpoint(one, base=first.tree, exclude=[])
            added = await stored_bytes(bus) - before
            # one of about eight segments, the root, seven bytes, and the object store's records
            assert 7 < second.new_bytes < first.new_bytes / 50
            assert second.new_bytes <= added < second.new_bytes + 4000
            assert (await store.diff(first.tree, second.tree)).changed == ["d3/f3"]
            before = await stored_bytes(bus)
            same = await store.checkpoint(one, base=second.tree, exclude=[])
            assert (same.tree, same.new_bytes) == (second.tree, 0)
            (root / "d4").rename(root / "moved")
            moved = await store.checkpoint(one, base=same.tree, exclude=[])
            assert moved.new_bytes < first.new_bytes / 20
            assert moved.files == 2000
            # also for a process that has never seen the box
            stranger = await WorkspaceStore(bus).checkpoint(one, base=moved.tree, exclude=[])
            assert (stranger.tree, stranger.new_bytes) == (moved.tree, 0)

    asyncio.run(main())


def test_what_is_removed_or_becomes_something_else(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server) as bus,
            open_box(tmp_path / "one") as one,
            open_box(tmp_path / "two") as two,
        ):
            root = Path(one.root)
            fill(root, {"dir/a": b"a", "dir/b": b"b", "dir-x": b"x", "file": b"f", "gone": b"g"})
            (root / "link").symlink_to("file")
            store = WorkspaceStore(bus)
            first = await store.checkpoint(one, exclude=[])
            (root / "dir" / "a").unlink()
            (root / "dir" / "b").unlink()
            (root / "dir").rmdir()
            (root / "dir").write_bytes(b"now a file")
            (root / "file").unlink()
            fill(root, {"file/below": b"now a directory"})
            (root / "gone").unlink()
            (root / "link").unlink()
            (root / "link").write_bytes(b"now a file")
            second = await store.checkpoint(one, base=first.tree, exclude=[])
            found = await store.diff(first.tree, second.tree)
            assert found.added == ["file/below"]
            assert found.changed == ["dir", "file", "link"]
            assert found.removed == ["dir/a", "dir/b", "gone"]
            await store.restore(two, second.tree, op="r")
            assert holds(Path(two.root)) == holds(root)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_any_changes(nats_server: NatsServer, tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        async with (
            open_bus(nats_server) as bus,
            open_box(tmp_path / "one") as one,
            open_box(tmp_path / "two") as two,
        ):
            store = WorkspaceStore(bus)
            tree = ""
            for number in range(8):
                for _ in range(dice.randint(0, 12)):
                    random_change(Path(one.root), dice)
                before = tree
                snapshot = await store.checkpoint(one, base=tree, exclude=[])
                tree = snapshot.tree
                expected = holds(Path(one.root))
                entries = await WorkspaceStore(bus).entries(tree)
                assert {os.fsencode(it.path): it.kind for it in entries} == {
                    path: it.kind for path, it in expected.items()
                }
                assert [it.path for it in entries] == sorted(
                    (it.path for it in entries), key=os.fsencode
                )
                if before and dice.random() < 0.5:
                    store = WorkspaceStore(bus)  # as after a restart
                if dice.random() < 0.5:
                    await store.restore(two, tree, op=f"r{number}")
                    assert holds(Path(two.root)) == expected
                    full = await store.checkpoint(two, base=tree, exclude=[])
                    assert (full.tree, full.new_bytes) == (tree, 0)

    asyncio.run(main())


def test_segments_are_cut_the_same_way_however_a_snapshot_came_about(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            names = [f"n{i:04}" for i in range(1500)]
            borders = [name for name in names if starts_segment(name.encode())]
            assert len(borders) >= 3
            inner = [name for name in names if name not in borders]
            store = WorkspaceStore(bus)
            fill(root, {name: name.encode() for name in names})
            whole = await store.checkpoint(one, exclude=[])
            for border in borders:
                (root / border).unlink()
            without = await store.checkpoint(one, base=whole.tree, exclude=[])
            listed = await store.add_files([(name, name.encode(), 0o644) for name in inner])
            assert listed == without.tree
            fill(root, {name: name.encode() for name in borders})
            back = await store.checkpoint(one, base=without.tree, exclude=[])
            assert back.tree == whole.tree

    asyncio.run(main())


def test_excluded_paths_are_neither_stored_nor_cleared(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {"a": b"1", "cache/x": b"2", "cache-not/x": b"3", "deep/cache/y": b"4"})
            store = WorkspaceStore(bus)
            whole = await store.checkpoint(one, exclude=[])
            snapshot = await store.checkpoint(one, base=whole.tree, exclude=["cache", "deep/cache"])
            paths = [it.path for it in await store.entries(snapshot.tree)]
            assert paths == ["a", "cache-not", "cache-not/x", "deep"]
            fill(root, {"a": b"changed"})
            await store.restore(one, snapshot.tree, op="r", keep=["cache"])
            assert (root / "a").read_bytes() == b"1"
            assert (root / "cache" / "x").read_bytes() == b"2"
            assert not (root / "deep" / "cache").exists()

    asyncio.run(main())


def test_a_snapshot_laid_out_in_a_directory(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            store = WorkspaceStore(bus)
            tree = await store.add_files([("a/b.txt", b"b", 0o755), ("c", b"c", 0o644)])
            fill(root, {"stays": b"1", "sub/dir/old": b"2", "merged/old": b"3"})
            await store.restore(one, tree, op="r1", into="sub/dir")
            await store.restore(one, tree, op="r2", into="new")
            await store.restore(one, tree, op="r3", into="merged", clear=False)
            snapshot = await store.checkpoint(one, exclude=[])
            files = [it.path for it in await store.entries(snapshot.tree) if it.kind == "file"]
            assert files == [
                "merged/a/b.txt", "merged/c", "merged/old", "new/a/b.txt", "new/c", "stays",
                "sub/dir/a/b.txt", "sub/dir/c",
            ]  # fmt: skip
            assert await store.subtree(snapshot.tree, "new") == tree
            assert (root / "new" / "a" / "b.txt").stat().st_mode & 0o777 == 0o755

    asyncio.run(main())


@pytest.mark.parametrize("harm", ["chunk", "object", "segment"])
def test_a_damaged_snapshot_leaves_the_workspace_as_it_is(
    nats_server: NatsServer, tmp_path: Path, harm: str
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {f"f{i}": os.urandom(1000) for i in range(50)})
            snapshot = await WorkspaceStore(bus).checkpoint(one, exclude=[])
            fill(root, {"f1": b"not lost"})
            before = holds(root)
            bucket = bus.topology.bucket
            kind = "M" if harm == "object" else "C"
            found = await stale_many(
                bus.connection, f"OBJ_{bucket}", f"$O.{bucket}.{kind}.*", after=0
            )
            # in the order of storing: the pack, the segments, the root
            harmed = found[1 if harm == "segment" else 0]
            await purge(bus, harmed.subject)
            if harm == "chunk":  # other bytes in its place
                await bus.connection.publish(harmed.subject, b"x" * len(harmed.data), msg_id="x")
            with pytest.raises(WorkspaceDamaged, match=r"missing|damaged") as raised:
                await WorkspaceStore(bus).restore(one, snapshot.tree, op="r")
            assert raised.value.tree == snapshot.tree
            assert raised.value.damaged in str(raised.value)
            assert raised.value.code == "snapshot_restore_error"
            assert holds(root) == before

    asyncio.run(main())


def test_a_checkpoint_survives_the_loss_of_its_base(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {f"f{i}": os.urandom(1000) for i in range(50)})
            first = await WorkspaceStore(bus).checkpoint(one, exclude=[])
            await purge(bus, f"$O.{bus.topology.bucket}.>")
            fill(root, {"f1": b"new"})
            store = WorkspaceStore(bus)
            second = await store.checkpoint(one, base=first.tree, exclude=[])
            await store.restore(one, second.tree, op="r")
            assert (root / "f1").read_bytes() == b"new"
            assert second.files == 50

    asyncio.run(main())


def test_packs_that_vanished_are_stored_again(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {f"f{i}": os.urandom(1000) for i in range(50)})
            store = WorkspaceStore(bus)
            first = await store.checkpoint(one, exclude=[])
            await purge(bus, f"$O.{bus.topology.bucket}.>")
            monkeypatch.setattr(freshness, "RECHECK_AFTER_S", 0)
            fill(root, {"f1": b"new"})
            second = await store.checkpoint(one, base=first.tree, exclude=[])
            assert second.new_bytes > 49_000
            await WorkspaceStore(bus).restore(one, second.tree, op="r")
            assert (root / "f1").read_bytes() == b"new"

    asyncio.run(main())


def test_a_young_snapshot_refers_to_no_old_object(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {f"f{i}": os.urandom(3000) for i in range(1000)})
            first = await WorkspaceStore(bus).checkpoint(one, exclude=[])
            bucket = bus.topology.bucket

            async def last_sequence_of_the_first() -> int:
                state = await bus.topology.stream_state(bus.connection, f"OBJ_{bucket}")
                return int(state["last_seq"])

            border = await last_sequence_of_the_first()
            monkeypatch.setattr(objects, "REFRESH_AFTER_S", 0)
            fill(root, {"f1": b"new"})
            store = WorkspaceStore(bus)
            second = await store.checkpoint(one, base=first.tree, exclude=[])
            await purge_up_to(bus, border)  # as age does it
            await WorkspaceStore(bus).restore(one, second.tree, op="r")
            assert (root / "f1").read_bytes() == b"new"
            assert len(holds(root)) == 1000
            # what was looked at just now is not asked about again, nor stored again
            border = await last_sequence_of_the_first()
            monkeypatch.setattr(objects, "REFRESH_AFTER_S", 12 * 3600)
            third = await store.checkpoint(one, base=second.tree, exclude=[])
            assert third.tree == second.tree
            assert await last_sequence_of_the_first() == border

    asyncio.run(main())


def test_a_late_checkpoint_of_one_changed_file_keeps_the_others(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same process makes all checkpoints, so it scans only what has changed."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {f"f{i}": os.urandom(3000) for i in range(1000)})
            store = WorkspaceStore(bus)
            tree = (await store.checkpoint(one, exclude=[])).tree
            monkeypatch.setattr(objects, "REFRESH_AFTER_S", 0)
            monkeypatch.setattr(freshness, "RECHECK_AFTER_S", 0)
            for day in (40, 80):
                border = await last_object(bus)
                fill(root, {"f1": b"day %d" % day})
                tree = (await store.checkpoint(one, base=tree, exclude=[])).tree
                await purge_up_to(bus, border)  # as age does it
                await WorkspaceStore(bus).restore(one, tree, op=f"r{day}")
                assert (root / "f1").read_bytes() == b"day %d" % day
                assert len(holds(root)) == 1000
                tree = (await store.checkpoint(one, base=tree, exclude=[])).tree

    asyncio.run(main())


def test_a_renewed_snapshot_outlives_what_it_was_made_of(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as one:
            root = Path(one.root)
            fill(root, {f"f{i}": os.urandom(3000) for i in range(1000)})
            before = holds(root)
            store = WorkspaceStore(bus)
            tree = (await store.checkpoint(one, exclude=[])).tree
            border = await last_object(bus)
            await store.renew(tree)
            assert await last_object(bus) == border  # it is young: nothing is stored
            monkeypatch.setattr(objects, "REFRESH_AFTER_S", 0)
            await store.renew(tree)
            await purge_up_to(bus, border)
            await WorkspaceStore(bus).restore(one, tree, op="r")
            assert holds(root) == before
            await purge(bus, f"$O.{bus.topology.bucket}.>")
            for some in (store, WorkspaceStore(bus)):
                with pytest.raises(WorkspaceDamaged, match="is missing"):
                    await some.renew(tree)

    asyncio.run(main())


async def last_object(bus: Bus) -> int:
    state = await bus.topology.stream_state(bus.connection, f"OBJ_{bus.topology.bucket}")
    return int(state["last_seq"])


async def purge_up_to(bus: Bus, sequence: int) -> None:
    await bus.connection.request(
        f"$JS.API.STREAM.PURGE.OBJ_{bus.topology.bucket}",
        msgspec.json.encode({"seq": sequence + 1}),
    )


def test_many_checkpoints_do_not_leave_many_packs(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SPARE_PACKS", 6)

    async def main() -> None:
        async with (
            open_bus(nats_server) as bus,
            open_box(tmp_path / "one") as one,
            open_box(tmp_path / "two") as two,
        ):
            store = WorkspaceStore(bus)
            tree = ""
            most = 0
            for number in range(30):
                fill(Path(one.root), {f"d/f{number}": os.urandom(100), "always": os.urandom(200)})
                if number == 3:
                    fill(Path(one.root), {"big": os.urandom(9 * MB)})
                tree = (await store.checkpoint(one, base=tree, exclude=[])).tree
                packs = {part.pack for it in await store.tree_entries(tree) for part in it.parts}
                most = max(most, len(packs))
            assert 6 < most <= 4 * 3 + 6
            await WorkspaceStore(bus).restore(two, tree, op="r")
            assert holds(Path(two.root)) == holds(Path(one.root))
            same = await store.checkpoint(one, base=tree, exclude=[])
            assert (same.tree, same.new_bytes) == (tree, 0)

    asyncio.run(main())
