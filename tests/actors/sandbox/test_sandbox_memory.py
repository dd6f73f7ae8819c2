"""Memories in workspaces: laid out when a sandbox is opened, changes told before it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest
from actors.sandbox.memory_yard import (
    ALL,
    HANDBOOK,
    MARKER,
    RAW,
    SCOPE,
    SESSION,
    SUMMARY,
    Place,
    files_in,
    marker_in,
    place,
    remember,
)
from sandstream_actors.memory.copies.files import Folder
from sandstream_bus.wire.memories import MemoryState
from sandstream_bus.wire.sandboxes import (
    MemoryMount,
    MemorySynced,
    PlanFile,
    SandboxMounted,
    SandboxSpec,
    WorkspacePlan,
)
from support.nats_server import NatsServer

MOUNT = MemoryMount(scope=SCOPE)
READ_ONLY = MemoryMount(scope=SCOPE, writable=False)


def with_files(**files: str) -> SandboxSpec:
    """What a manifest brings along."""
    entries = [PlanFile(path=f"memories/{name}.md", data=it.encode()) for name, it in files.items()]
    return SandboxSpec(plan=WorkspacePlan(files=entries))


def test_a_memory_is_laid_out_and_its_changes_are_told_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            state = await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            assert files_in(workspace) == ALL
            assert (workspace / "memories/skills").is_dir()
            assert (workspace / HANDBOOK).stat().st_mode & 0o777 == 0o644
            marker = marker_in(workspace)
            assert marker is not None
            assert (marker.scope, marker.revision) == (SCOPE, state.revision)
            (workspace / HANDBOOK).write_text("a\nB\nc\n")
            (workspace / "memories/notes.md").write_text("mine\n")
            (workspace / RAW).write_text("not to be changed")
            await it.close("one")
            changed = {HANDBOOK: "a\nB\nc\n", "memories/notes.md": "mine\n"}
            assert await it.told() == [changed]
            assert (await it.edits())[0].base == state.revision
            assert (await it.edits())[0].sandbox == "one"
            workspace = await it.open("one", MOUNT)
            assert files_in(workspace) == ALL | changed  # nobody has taken it over yet
            await it.close("one")
            assert await it.told() == [changed]
            events = [each.event for each in await it.bus.sandboxes.read("one")]
            assert not [each for each in events if isinstance(each, SandboxMounted)]

    asyncio.run(story())


def test_what_both_changed_is_merged_and_told_as_a_change_of_the_newest(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            (workspace / HANDBOOK).write_text("a\nb\nc\nmine\n")
            newest = await remember(it.bus, {HANDBOOK: "theirs\na\nb\nc\n", RAW: None})
            assert await it.lifecycle.sync_memory("one", SCOPE) == MemorySynced(
                synced=True, revision=newest.revision, edits=1
            )
            together = "theirs\na\nb\nc\nmine\n"
            left = {HANDBOOK: together, SUMMARY: "short\n", SESSION: "{}\n"}
            assert files_in(workspace) == left
            assert await it.told() == [{HANDBOOK: together}]
            assert (await it.edits())[0].base == newest.revision
            # not taken over yet, but something else changed: it is kept, and not told again
            await remember(it.bus, {HANDBOOK: "more\ntheirs\na\nb\nc\n"})
            assert (await it.lifecycle.sync_memory("one", SCOPE)).edits == 0
            assert (workspace / HANDBOOK).read_text() == f"more\n{together}"
            # taken over, and put in other words since: nothing of it comes twice
            await remember(it.bus, {HANDBOOK: f"more\n{together}"}, kind="edit", by="one")
            await remember(it.bus, {HANDBOOK: "theirs\na\nb\nc\nreworded\n"})
            assert (await it.lifecycle.sync_memory("one", SCOPE)).edits == 0
            assert (workspace / HANDBOOK).read_text() == "theirs\na\nb\nc\nreworded\n"

    asyncio.run(story())


def test_a_memory_that_is_only_read_is_restored(nats_server: NatsServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", READ_ONLY)
            (workspace / HANDBOOK).write_text("changed")
            (workspace / SUMMARY).unlink()
            (workspace / "memories/notes.md").write_text("mine")
            await it.close("one")
            tree = (await it.lifecycle.record("one")).tree
            workspace = await it.open("two", MOUNT, SandboxSpec(base=tree))
            assert files_in(workspace) == ALL
            # nor is it kept because the next one may write
            workspace = await it.open("one", READ_ONLY)
            (workspace / HANDBOOK).write_text("changed")
            await it.open("one", MOUNT)
            assert files_in(workspace) == ALL
            assert await it.told() == []

    asyncio.run(story())


def test_a_workspaces_own_files_become_its_memory(nats_server: NatsServer, tmp_path: Path) -> None:
    """Also where the agent may only read: it is not the agent who put them there."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            mount = MemoryMount(scope="sandbox:one", writable=False)
            workspace = await it.open("one", mount, with_files(MEMORY="known", own="note"))
            told = {HANDBOOK: "known", "memories/own.md": "note"}
            assert await it.told("sandbox:one") == [told]
            assert files_in(workspace) == told | {SUMMARY: ""}
            # what an agent writes after it removed the marker is not
            (workspace / MARKER).unlink()
            (workspace / SUMMARY).write_text("evil")
            await it.lifecycle.sync_memory("one", "sandbox:one")
            assert len(await it.told("sandbox:one")) == 1

    asyncio.run(story())


def test_changes_that_nobody_can_tell_without_the_marker_are_named(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            (workspace / MARKER).write_text("no marker")
            (workspace / HANDBOOK).write_text("changed\n")
            (workspace / "memories/own.md").write_text("new\n")
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            assert await it.told() == [{"memories/own.md": "new\n"}]
            assert (workspace / HANDBOOK).read_text() == ALL[HANDBOOK]

    asyncio.run(story())
    assert ".memory.json is missing or damaged, so they cannot be identified" in caplog.text
    assert f"make them again: {HANDBOOK}" in caplog.text


def test_what_each_new_workspace_brings_along_is_taken_over_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            spec = with_files(MEMORY="known\n", own="note\n")
            await it.open("one", MOUNT, spec)
            assert await it.told() == [{HANDBOOK: "known\n", "memories/own.md": "note\n"}]
            newest = {HANDBOOK: "known\nmore\n", "memories/own.md": "shorter\n"}
            await remember(it.bus, newest)
            workspace = await it.open("two", MOUNT, spec)
            assert files_in(workspace) == newest | {SUMMARY: ""}
            assert len(await it.told()) == 1

    asyncio.run(story())


def test_a_file_that_is_changed_during_the_sync_is_not_overwritten(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            live = await it.lifecycle.live("one")
            await remember(it.bus, {HANDBOOK: "theirs\na\nb\nc\n"})
            folder = Folder(live.box, MOUNT)
            found = await folder.survey([])
            assert not await folder.differs(found, [HANDBOOK])
            (workspace / HANDBOOK).write_text("a\nb\nc\nmine\n")
            assert await folder.differs(found, [HANDBOOK])
            await it.lifecycle.sync_memory("one", SCOPE)
            assert (workspace / HANDBOOK).read_text() == "theirs\na\nb\nc\nmine\n"

    asyncio.run(story())


def test_no_run_is_needed_to_close_and_nothing_to_be_saved(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A workspace that is thrown away still tells; one that is restored still gets the news."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("gone", MOUNT)
            (workspace / SUMMARY).write_text("longer\n")
            await it.lifecycle.pause("gone")
            await it.close("gone", checkpoint=False)
            assert await it.told() == [{SUMMARY: "longer\n"}]
            workspace = await it.open("kept", MOUNT)
            (workspace / "memories/notes.md").write_text("mine\n")
            await it.lifecycle.checkpoint(await it.lifecycle.live("kept"))
            it.yard.kill_box(await it.lifecycle.record("kept"))
            await it.lifecycle._provider.delete((await it.lifecycle.record("kept")).key)
            it.lifecycle.forget("kept")
            await remember(it.bus, {HANDBOOK: "new\n"})
            await it.lifecycle.live("kept")  # as the next command finds it
            workspace = await it.workspace("kept")
            assert (workspace / HANDBOOK).read_text() == "new\n"
            assert (await it.told())[1:] == [{"memories/notes.md": "mine\n"}]

    asyncio.run(story())


def test_deleted_files_stay_deleted_but_not_the_handbook(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            skill = "memories/skills/x/SKILL.md"
            await remember(it.bus, ALL | {skill: "how to\n"})
            workspace = await it.open("one", MOUNT)
            (workspace / skill).unlink()
            (workspace / HANDBOOK).unlink()
            await it.lifecycle.sync_memory("one", SCOPE)
            assert await it.told() == [{skill: None}]
            assert files_in(workspace) == ALL

    asyncio.run(story())


def test_a_memory_that_was_removed_goes_from_workspaces(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            workspace = await it.open("one", MOUNT)
            (workspace / "sessions/foreign.txt").write_text("of the user")
            await it.bus.memories.delete(SCOPE)
            await it.lifecycle.sync_memory("one", SCOPE)
            left = {HANDBOOK: "", SUMMARY: "", "sessions/foreign.txt": "of the user"}
            assert files_in(workspace) == left
            assert await it.told() == []

    asyncio.run(story())


def test_another_memory_in_the_same_place_gets_nothing_of_the_first(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            await remember(it.bus, {HANDBOOK: "of another\n"}, scope="user-43")
            workspace = await it.open("one", MOUNT)
            (workspace / HANDBOOK).write_text("of 42\n")
            (workspace / "memories/notes.md").write_text("of 42\n")
            other = MemoryMount(scope="user-43")
            await it.open("one", other)
            assert files_in(workspace) == {HANDBOOK: "of another\n", SUMMARY: ""}
            assert await it.told() == [{HANDBOOK: "of 42\n", "memories/notes.md": "of 42\n"}]
            assert await it.told("user-43") == []
            record = await it.lifecycle.record("one")
            assert [*record.memories] == ["user-43"]
            assert not (await it.lifecycle.sync_memory("one", SCOPE)).synced
            # both, where they do not share a directory
            await it.open("one", MemoryMount(scope=SCOPE, memories_dir="m/x", sessions_dir="m/s"))
            assert (workspace / "m/x/MEMORY.md").read_text() == ALL[HANDBOOK]
            assert (workspace / "m/s/r1.jsonl").read_text() == ALL[SESSION]
            assert [*(await it.lifecycle.record("one")).memories] == ["user-43", SCOPE]

    asyncio.run(story())


def test_a_sync_makes_and_wakes_nothing(nats_server: NatsServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            sync = it.lifecycle.sync_memory
            assert not (await sync("one", SCOPE)).synced
            await it.open("one", MOUNT)
            assert (await sync("one", SCOPE)).synced
            await it.lifecycle.pause("one")
            assert not (await sync("one", SCOPE)).synced
            await it.lifecycle.live("one")
            assert (await sync("one", SCOPE)).synced  # though the log does not say that it woke
            await it.close("one")
            last = (await it.lifecycle.record("one")).last_seq
            assert not (await sync("one", SCOPE)).synced
            assert (await it.lifecycle.record("one")).last_seq == last

    asyncio.run(story())


async def _requests(it: Place, work: Awaitable[object]) -> int:
    """How often the states of memories were read meanwhile."""
    heard: list[str] = []
    subject = f"$JS.API.STREAM.MSG.GET.{it.bus.topology.memory}"
    listening = await it.bus.connection.subscribe(subject, lambda m: heard.append(m.subject))
    await work
    await it.bus.memories.scopes()
    await listening.close()
    return len(heard)


def test_it_costs_one_read_and_without_a_memory_none(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            nothing = await _requests(it, asyncio.sleep(0))
            assert await _requests(it, it.open("plain")) == nothing
            assert await _requests(it, it.close("plain")) == nothing
            owned = SandboxSpec(run="r1")
            assert await _requests(it, it.open("one", MOUNT, owned)) == nothing + 1

    asyncio.run(story())


def test_lasting_workspaces_are_known_to_the_memory(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL)
            await it.open("one", MOUNT)
            await it.open("of-a-run", MOUNT, SandboxSpec(run="r1"))
            assert (await it.bus.memories.read(SCOPE)).state.sandboxes == ["one"]

    asyncio.run(story())


# --- what is in the way ---------------------------------------------------------------------------


_MESS = """
cd memories
rm MEMORY.md memory_summary.md a.md
ln -s /etc/passwd MEMORY.md
mkdir memory_summary.md; echo x > memory_summary.md/x.md
mkfifo a.md
printf '\\377' > d.md
head -c 1048577 /dev/zero > big.md
rm -r raw_memories skills
ln -s /etc raw_memories
ln -s /tmp skills
"""


def test_nothing_in_a_workspace_leads_out_of_it_or_stops_it(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            everything = ALL | {"memories/a.md": "a", "memories/d.md": "d"}
            await remember(it.bus, everything)
            workspace = await it.open("one", MOUNT)
            await it.shell("one", _MESS)
            synced = await it.lifecycle.sync_memory("one", SCOPE)
            assert (synced.synced, synced.edits) == (True, 0)
            await it.shell("one", "rm memories/big.md memories/skills")
            assert files_in(workspace) == everything
            assert not (workspace / HANDBOOK).is_symlink()
            # the whole directory: out of the workspace, into it, to nothing, to itself
            for number, target in enumerate(("/tmp", "..", "nowhere", "memories")):
                await it.shell("one", f"mv memories moved{number}; ln -s {target} memories")
                assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
                assert not (workspace / "memories").is_symlink()
                assert files_in(workspace) == everything
            await it.shell("one", "test ! -e /tmp/MEMORY.md; test ! -e MEMORY.md")
            assert await it.told() == []
            await it.close("one")

    asyncio.run(story())
    assert "memories/big.md is bigger than" in caplog.text


def test_trouble_with_a_memory_is_said_once_and_stops_nothing(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            state = await remember(it.bus, ALL)
            in_the_way = SandboxSpec(plan=WorkspacePlan(files=[PlanFile(path="memories")]))
            await it.open("one", MOUNT, in_the_way)
            await it.open("one", MOUNT)
            await it.close("one")
            assert caplog.text.count("is in the way of the memory: move it") == 1
            wrong = MemoryMount(scope=SCOPE, memories_dir="../x")
            await it.open("two", wrong)
            assert "must not leave the workspace" in caplog.text
            await it.bus.memories.forget(SCOPE, [state.tree[RAW].digest])
            workspace = await it.open("three", MOUNT)
            assert files_in(workspace) == {p: text for p, text in ALL.items() if p != RAW}
            assert f"lost; undo its last change: {RAW}" in caplog.text
            # what nobody can read is not what was asked for
            subject = it.bus.subjects.memory_state("broken")
            await it.bus.connection.publish(subject, b"{", msg_id="1")
            await it.open("four", MemoryMount(scope="broken"))
            assert "its files were not written" in caplog.text

    asyncio.run(story())


# --- workspaces made from others ------------------------------------------------------------------


@pytest.mark.parametrize("is_of_a_run", [True, False])
def test_a_fork_starts_with_the_memory_of_its_parent(
    nats_server: NatsServer, tmp_path: Path, is_of_a_run: bool
) -> None:
    """A run's own sandbox is made with its memory; that of a session gets it with the first run."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await it.open("parent", MemoryMount(scope="sandbox:parent"))
            await remember(it.bus, ALL, scope="sandbox:parent")
            await it.lifecycle.sync_memory("parent", "sandbox:parent")
            await it.close("parent")
            tree = (await it.lifecycle.record("parent")).tree
            await remember(it.bus, {HANDBOOK: "a\nb\nc\nlater\n"}, scope="sandbox:parent")
            mount = MemoryMount(scope="sandbox:child")
            if not is_of_a_run:
                await it.open("child", None, SandboxSpec(base=tree))
                await it.lifecycle.checkpoint(await it.lifecycle.live("child"))
            workspace = await it.open("child", mount, SandboxSpec(base=tree))
            assert files_in(workspace) == ALL | {HANDBOOK: "a\nb\nc\nlater\n"}
            child = await _state(it, "sandbox:child")
            assert [each.kind for each in child.history] == ["import"]
            assert child.parent is not None and not child.parent.is_settled
            # until the parent has nothing under way
            await remember(it.bus, {SUMMARY: "of the child\n"}, scope="sandbox:child")
            await remember(it.bus, {HANDBOOK: "a\nb\nc\nlast\n"}, scope="sandbox:parent")
            await it.open("child", mount)
            child = await _state(it, "sandbox:child")
            assert child.parent is not None and child.parent.is_settled
            await remember(it.bus, {HANDBOOK: "too late\n"}, scope="sandbox:parent")
            await it.open("child", mount)
            left = {HANDBOOK: "a\nb\nc\nlast\n", SUMMARY: "of the child\n"}
            assert files_in(workspace) == ALL | left
            assert await it.told("sandbox:child") == []

    asyncio.run(story())


def test_a_fork_of_an_unknown_workspace_keeps_what_is_in_its_files(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Such as one from an archive of another installation."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            workspace = await it.open("parent", MemoryMount(scope="sandbox:parent"))
            (workspace / HANDBOOK).write_text("known\n")
            await it.shell("parent", "sed -i s/sandbox:parent/sandbox:far/ memories/.memory.json")
            await it.lifecycle.checkpoint(await it.lifecycle.live("parent"))
            tree = (await it.lifecycle.record("parent")).tree
            mount = MemoryMount(scope="sandbox:child")
            workspace = await it.open("child", mount, SandboxSpec(base=tree))
            assert files_in(workspace)[HANDBOOK] == "known\n"
            assert await it.told("sandbox:child") == [{HANDBOOK: "known\n"}]

    asyncio.run(story())


def test_a_forged_marker_shows_nothing_of_another_memory(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, {HANDBOOK: "secret\n"}, scope="sandbox:victim")
            workspace = await it.open("evil", MemoryMount(scope="sandbox:evil"))
            for scope in ("sandbox:victim", "sandbox:*"):
                marker = marker_in(workspace)
                assert marker is not None
                forged = msgspec.structs.replace(marker, scope=scope)
                (workspace / MARKER).write_bytes(forged.encode())
                await it.open("evil", MemoryMount(scope="sandbox:evil"))
                assert "secret" not in str(files_in(workspace))
                (workspace / MARKER).write_bytes(forged.encode())
                await it.lifecycle.checkpoint(await it.lifecycle.live("evil"))
                tree = (await it.lifecycle.record("evil")).tree
                fork = f"fork-{len(scope)}"
                mount = MemoryMount(scope=f"sandbox:{fork}")
                forked = await it.open(fork, mount, SandboxSpec(base=tree))
                assert "secret" not in str(files_in(forked))

    asyncio.run(story())


async def _state(it: Place, scope: str) -> MemoryState:
    return (await it.bus.memories.read(scope)).state
