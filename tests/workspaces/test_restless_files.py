"""Files that change while they are written down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import ResolveRule
from sandstream_workspaces.errors import CheckpointFailed
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer, open_bus
from workspaces.boxes import open_box
from workspaces.files import fill, holds

MB = 1024 * 1024


class RestlessBox(AgentBox):
    """Before a file is read, something happens to it."""

    happens: Callable[[Path], None]

    @classmethod
    def of(cls, box: AgentBox, happens: Callable[[Path], None]) -> RestlessBox:
        restless = cls(box.key, box.root, box._connect, {})
        restless.happens = happens
        return restless

    async def read(
        self, path: str, rule: ResolveRule, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        self.happens(Path(path))
        return await super().read(path, rule, offset=offset, limit=limit)


def test_what_two_reads_agree_on_is_taken(nats_server: NatsServer, tmp_path: Path) -> None:
    contents = [os.urandom(5 * MB), os.urandom(6 * MB)]

    def happens(path: Path) -> None:
        if contents:
            path.write_bytes(contents.pop())

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as box:
            root = Path(box.root)
            restless = RestlessBox.of(box, happens)
            fill(root, {"big": os.urandom(7 * MB), "small": b"s"})
            store = WorkspaceStore(bus)
            first = await store.checkpoint(restless, exclude=[])
            assert not contents
            before = holds(root)
            again = await store.checkpoint(restless, base=first.tree, exclude=[])
            assert again.tree == first.tree
            await store.restore(restless, first.tree, op="r")
            assert holds(root) == before
            assert first.size_bytes == 5 * MB + 1
            await restless.close()

    asyncio.run(main())


def test_a_file_that_never_rests_is_named(nats_server: NatsServer, tmp_path: Path) -> None:
    def happens(path: Path) -> None:
        path.write_bytes(os.urandom(5 * MB))

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as box:
            restless = RestlessBox.of(box, happens)
            fill(Path(box.root), {"dir/log": os.urandom(5 * MB), "small": b"s"})
            store = WorkspaceStore(bus)
            with pytest.raises(CheckpointFailed, match=r"'dir/log'.*changes all the time"):
                await store.checkpoint(restless, exclude=[])
            # what the failed one had seen of the changes is not taken for stored
            quiet = RestlessBox.of(box, lambda path: None)
            snapshot = await store.checkpoint(quiet, exclude=[])
            content = [piece async for piece in store.read_file(snapshot.tree, "dir/log")]
            assert b"".join(content) == (Path(box.root) / "dir" / "log").read_bytes()
            assert snapshot.files == 2
            await restless.close()
            await quiet.close()

    asyncio.run(main())


def test_a_file_that_goes_away(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as box:
            restless = RestlessBox.of(box, lambda path: path.unlink(missing_ok=True))
            fill(Path(box.root), {"big": os.urandom(5 * MB), "small": b"s"})
            store = WorkspaceStore(bus)
            first = await store.checkpoint(restless, exclude=[])
            assert [it.path for it in await store.entries(first.tree)] == ["small"]
            second = await store.checkpoint(restless, base=first.tree, exclude=[])
            assert second.tree == first.tree
            await restless.close()

    asyncio.run(main())


def test_a_scan_by_somebody_else_loses_nothing(nats_server: NatsServer, tmp_path: Path) -> None:
    """The box counts from the last scan, whoever made it; a snapshot must not."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(tmp_path / "one") as box:
            fill(Path(box.root), {"a": b"1", "b": b"1"})
            one, two = WorkspaceStore(bus), WorkspaceStore(bus)
            first = await one.checkpoint(box, exclude=[])
            fill(Path(box.root), {"a": b"22"})
            second = await two.checkpoint(box, base=first.tree, exclude=[])
            fill(Path(box.root), {"b": b"333"})
            third = await one.checkpoint(box, base=second.tree, exclude=[])
            sizes = [it.size for it in await one.entries(third.tree)]
            assert sizes == [2, 3]

    asyncio.run(main())
