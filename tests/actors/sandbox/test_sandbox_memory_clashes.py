"""Files where directories of a memory belong, and the other way round: put right, not for ever in
the way.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from actors.sandbox.memory_yard import (
    ALL,
    HANDBOOK,
    RAW,
    SCOPE,
    SESSION,
    SUMMARY,
    files_in,
    place,
    remember,
)
from sandstream_bus.wire.sandboxes import MemoryMount, PlanFile, SandboxSpec, WorkspacePlan
from support.nats_server import NatsServer

MOUNT = MemoryMount(scope=SCOPE)
SKILL = "memories/skills/x/SKILL.md"

CLASHES = {
    "memories": "rm -r memories; echo x > memories",
    "sessions": "rm -r sessions; echo x > sessions",
    "both": "rm -r memories sessions; touch memories sessions",
    "raw": "rm -r memories/raw_memories; echo x > memories/raw_memories",
    "summaries": "rm -r memories/rollout_summaries; echo x > memories/rollout_summaries",
    "marker": "rm memories/.memory.json; mkdir -p memories/.memory.json/x",
    "handbook": "rm memories/MEMORY.md; mkdir memories/MEMORY.md; echo x > memories/MEMORY.md/x.md",
    "raw-file": "rm memories/raw_memories/r1.md; mkdir memories/raw_memories/r1.md",
}


@pytest.mark.parametrize("name", CLASHES)
def test_what_is_in_the_way_of_a_memory_that_was_laid_out_goes(
    nats_server: NatsServer, tmp_path: Path, name: str
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            await it.shell("one", CLASHES[name])
            later = {RAW: "newer\n", "memories/rollout_summaries/r1_x.md": "of it\n"}
            await remember(it.bus, later)
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            assert files_in(workspace) == ALL | later
            # nor does it wait in a checkpoint for the next one
            await it.shell("one", CLASHES[name])
            await it.close("one")
            workspace = await it.open("one", MOUNT)
            assert files_in(workspace) == ALL | later
            assert await it.told() == []

    asyncio.run(story())


def test_skills_that_were_replaced_by_a_file_are_deleted_and_nothing_else(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL | {SKILL: "how to\n"})
            workspace = await it.open("one", MOUNT)
            await it.shell("one", "cd memories; rm -r skills; echo x > skills")
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            assert await it.told() == [{SKILL: None}]
            assert files_in(workspace) == ALL
            await remember(it.bus, {SKILL: "again\n"})
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            assert (workspace / SKILL).read_text() == "again\n"

    asyncio.run(story())
    assert "left out where directories belong: memories/skills" in caplog.text


def test_a_note_in_the_way_of_somebody_elses_gives_way(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL | {"memories/a/1.md": "1\n"})
            workspace = await it.open("one", MOUNT)
            # alone it is a change like others
            await it.shell("one", "cd memories; rm -r a; echo one > a")
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            told = {"memories/a/1.md": None, "memories/a": "one\n"}
            assert await it.told() == [told]
            await remember(it.bus, told, kind="edit", by="one")
            await it.lifecycle.sync_memory("one", SCOPE)
            assert files_in(workspace) == ALL | {"memories/a": "one\n"}
            # b is a file here and a directory there
            await it.shell("one", "echo mine > memories/b")
            await remember(it.bus, {"memories/b/2.md": "2\n"})
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            left = ALL | {"memories/a": "one\n", "memories/b/2.md": "2\n"}
            assert files_in(workspace) == left
            # c is a directory here and a file there
            await it.shell("one", "mkdir memories/c; echo mine > memories/c/3.md")
            await remember(it.bus, {"memories/c": "3\n"})
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            assert files_in(workspace) == left | {"memories/c": "3\n"}
            assert await it.told() == [told]

    asyncio.run(story())
    assert "left out where directories belong: memories/b" in caplog.text


def test_a_memory_that_contradicts_itself_is_laid_out_all_the_same(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As older versions could make it: the directory counts."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            odd = {"memories/raw_memories": "x\n", "memories/skills": "y\n", "memories/n": "z\n"}
            good = {**ALL, SKILL: "how to\n", "memories/n/a.md": "a\n"}
            await remember(it.bus, good | odd)
            workspace = await it.open("one", MOUNT)
            assert files_in(workspace) == good
            (workspace / HANDBOOK).write_text("a\nb\nc\nd\n")
            await it.close("one")
            assert await it.told() == [{HANDBOOK: "a\nb\nc\nd\n"}]
            workspace = await it.open("one", MOUNT)
            assert files_in(workspace) == good | {HANDBOOK: "a\nb\nc\nd\n"}

    asyncio.run(story())
    assert "left out where directories belong: memories/n" in caplog.text


def test_what_was_there_before_the_memory_stays(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            spec = SandboxSpec(plan=WorkspacePlan(files=[PlanFile(path="sessions", data=b"own")]))
            workspace = await it.open("one", MOUNT, spec)
            assert not (await it.lifecycle.sync_memory("one", SCOPE)).synced
            await it.close("one")
            workspace = await it.open("one", MOUNT)
            assert (workspace / "sessions").read_text() == "own"
            assert not (workspace / "memories").exists()
            # and it is enough to move it
            await it.shell("one", "mv sessions own")
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            assert files_in(workspace) == ALL
            assert {SUMMARY, SESSION} <= ALL.keys()

    asyncio.run(story())
    assert caplog.text.count("is in the way of the memory: move it") == 1
