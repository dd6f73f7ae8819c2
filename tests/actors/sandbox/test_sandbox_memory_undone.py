"""A change that was made in a workspace, became part of the memory, and was taken back by somebody:
it neither stays in that workspace nor comes back from there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from actors.sandbox.memory_yard import ALL, HANDBOOK, SCOPE, Place, place, remember
from sandstream_actors.memory.changes import undo
from sandstream_bus.wire.sandboxes import MemoryMount
from support.nats_server import NatsServer

MOUNT = MemoryMount(scope=SCOPE)
NOTE = "memories/notes.md"


async def handbook(it: Place) -> str:
    state = (await it.bus.memories.read(SCOPE)).state
    return (await it.bus.memories.get(SCOPE, state.tree[HANDBOOK])).decode()


def test_an_undone_change_goes_from_the_workspace_that_made_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            await it.shell("one", f"echo WRONG >> {HANDBOOK}; echo WRONG > {NOTE}")
            await it.close("one")
            await it.take_over()
            assert await handbook(it) == "a\nb\nc\nWRONG\n"
            await undo(it.bus, SCOPE, None, "a person")
            workspace = await it.open("one", MOUNT)
            assert (workspace / HANDBOOK).read_text() == ALL[HANDBOOK]
            assert not (workspace / NOTE).exists()
            await it.shell("one", f"echo right >> {HANDBOOK}")
            await it.close("one")
            assert (await it.told())[1:] == [{HANDBOOK: "a\nb\nc\nright\n"}]

    asyncio.run(story())


def test_nor_does_it_come_back_with_the_next_change(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """The workspace stays open and has heard of nothing, neither of the change nor of the undo."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            await it.shell("one", f"echo WRONG >> {HANDBOOK}")
            await it.lifecycle.sync_memory("one", SCOPE)
            await it.take_over()
            await undo(it.bus, SCOPE, None, "a person")
            await it.shell("one", f"sed -i 1iright {HANDBOOK}")
            await it.lifecycle.sync_memory("one", SCOPE)
            assert (workspace / HANDBOOK).read_text() == "right\na\nb\nc\n"
            await it.take_over()
            assert await handbook(it) == "right\na\nb\nc\n"

    asyncio.run(story())


def test_of_two_changes_the_one_that_waits_is_kept(nats_server: NatsServer, tmp_path: Path) -> None:
    """The memory has the first one only, and somebody has taken that back."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            await it.shell("one", f"echo WRONG >> {HANDBOOK}")
            await it.lifecycle.sync_memory("one", SCOPE)
            await it.shell("one", f"echo later > {NOTE}")
            await it.lifecycle.sync_memory("one", SCOPE)
            assert await it.told() == [{HANDBOOK: "a\nb\nc\nWRONG\n"}, {NOTE: "later\n"}]
            await it.take_over(0)
            await undo(it.bus, SCOPE, None, "a person")
            assert (await it.lifecycle.sync_memory("one", SCOPE)).edits == 0
            assert (workspace / HANDBOOK).read_text() == ALL[HANDBOOK]
            assert (workspace / NOTE).read_text() == "later\n"
            await it.take_over(1)
            await it.lifecycle.sync_memory("one", SCOPE)
            assert (workspace / NOTE).read_text() == "later\n"
            assert len(await it.told()) == 2

    asyncio.run(story())


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_removed_since_does_not_come_back(
    nats_server: NatsServer, tmp_path: Path, is_known: bool
) -> None:
    """A removal cuts the history, so that nobody can look the change up."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            await it.shell("one", f"echo PRIVATE >> {HANDBOOK}")
            await it.lifecycle.sync_memory("one", SCOPE)
            if is_known:
                await it.take_over()
            await remember(it.bus, {HANDBOOK: ALL[HANDBOOK]}, kind="remove")
            await it.lifecycle.sync_memory("one", SCOPE)
            assert (workspace / HANDBOOK).read_text() == ALL[HANDBOOK]

    asyncio.run(story())


@pytest.mark.parametrize("purpose", ["sync", "close", "discard"])
def test_what_is_put_back_where_nobody_may_change_it_is_named(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, purpose: str
) -> None:
    """Also what a person wrote with a session: nobody can tell who it was."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            skill = "memories/skills/x/SKILL.md"
            await remember(it.bus, ALL | {skill: "how to\n"})
            workspace = await it.open("one", MemoryMount(scope=SCOPE, writable=False))
            await it.lifecycle.sync_memory("one", SCOPE)
            assert "not kept" not in caplog.text
            (workspace / NOTE).write_text("of a person\n")
            (workspace / skill).unlink()
            if purpose == "sync":
                await it.lifecycle.sync_memory("one", SCOPE)
                await it.lifecycle.sync_memory("one", SCOPE)
            else:
                await it.close("one", checkpoint=purpose == "close")
            assert await it.told() == []
            assert caplog.text.count("not kept") == 1
            assert f"may change this memory: {NOTE}, {skill}" in caplog.text

    asyncio.run(story())
