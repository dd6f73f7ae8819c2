"""What agents and people change in a memory: edits, undo, removal; and that it stays in bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from actors.memory.rig import (
    FOUND,
    SCOPE,
    Play,
    Rig,
    completed,
    raw,
    rollout_of,
    use,
)
from sandstream_actors.memory.changes import NotInMemory, delete_scope, remove, undo
from sandstream_actors.memory.scope.files import KEPT_REVISIONS
from sandstream_bus.wire.memories import MemoryFailed
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.sandboxes import SandboxIntended, SandboxReady, SandboxSpec
from sandstream_bus.wire.subjects import RunId
from support.waiting import eventually

from sandstream.testing import ScriptedModel

HANDBOOK, SUMMARY = "memories/MEMORY.md", "memories/memory_summary.md"


async def merged(it: Rig, handbook: str) -> None:
    """Consolidate what was extracted into this."""
    before = (await it.state()).merges
    await it.ask()
    await it.end_phase(await it.merging(), completed(), MEMORY=handbook, memory_summary="Tea.")
    await it.until(lambda s: s.merges > before, "it is consolidated")


def sourced(*rollouts: str) -> str:
    """A handbook with one block for each of these."""
    return "".join(
        f"# About {name}\n\nscope: {name}\n\n## Task 1\n\n### rollout_summary_files\n\n"
        f"- rollout_summaries/{name}_tea-orders.md\n\n## Notes\n\n- fact of {name}\n\n"
        for name in rollouts
    )


# --- edits ----------------------------------------------------------------------------------------


def test_an_edit_is_kept_in_the_history_and_other_workspaces_are_told(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a", sandbox="box-1")
            await merged(it, "# Tea\n\ngreen\n")
            after = await it.bus.sandboxes.append(
                "box-1",
                SandboxIntended(
                    spec=SandboxSpec(), generation=1, provider="local", node="n1", key="k"
                ),
                after=0,
            )
            ready = SandboxReady(generation=1, node="n1", key="k", root="/w")
            await it.bus.sandboxes.append("box-1", ready, after=after)
            state = await it.state()
            changed = (await it.text(HANDBOOK)).replace("green", "black")
            await it.edit(HANDBOOK, changed, base=state.revision, run="run9")
            state = await it.until(lambda s: s.history[-1].kind == "edit", "it is edited")
            assert "black" in await it.text(HANDBOOK)
            assert (state.history[-1].by, state.history[-1].runs) == ("run9", ["run9"])
            assert state.sandboxes[-1] == "box-2"
            await it.caught_up()
            assert (await it.kinds())[-1] == "edit"
            asked = await it.bus.topology.subjects_of(
                it.bus.connection, it.bus.topology.log, "sandstream.sandbox.*.op.>"
            )
            assert asked == ["sandstream.sandbox.box-1.op.local.n1"], "not the one that told it"

    play(scene)


def test_edits_on_an_old_revision_lose_nothing(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a")
            await merged(it, "# Tea\n\none\n\ntwo\n\nthree\n")
            base = (await it.state()).revision
            text = await it.text(HANDBOOK)
            await it.edit(HANDBOOK, text.replace("one", "1"), base=base)
            await it.edit(HANDBOOK, text.replace("three", "3"), base=base, sandbox="box-3")
            await it.edit("memories/skills/brew/SKILL.md", "---\nname: brew\n---\n", base=base)
            await it.until(lambda s: len(s.history) == 4, "all are there")
            text = await it.text(HANDBOOK)
            assert "1\n\ntwo\n\n3" in text and "one" not in text and "three" not in text
            assert "name: brew" in await it.text("memories/skills/brew/SKILL.md")
            await it.edit("memories/skills/brew/SKILL.md", None, base=(await it.state()).revision)
            await it.until(lambda s: len(s.history) == 5, "it is deleted")
            assert "memories/skills/brew/SKILL.md" not in (await it.state()).tree

    play(scene)


def test_an_edit_during_a_consolidation_survives_it(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a")
            await merged(it, "# Tea\n\ngreen\n")
            await it.extracted("and coffee", rollout="b")
            await it.ask()
            merge = await it.merging()
            state = await it.state()
            text = await it.text(HANDBOOK)
            await it.edit(HANDBOOK, f"{text}\n# By hand\n\nkept\n", base=state.revision)
            await it.until(lambda s: s.history[-1].kind == "edit", "it is edited")
            new = text.replace("green", "green, and coffee")
            await it.end_phase(merge, completed(), MEMORY=new, memory_summary="Drinks.")
            await it.until(lambda s: s.merges == 2, "it is consolidated")
            text = await it.text(HANDBOOK)
            assert "green, and coffee" in text and "# By hand\n\nkept" in text

    play(scene)


def test_what_cannot_be_edited_is_refused_and_the_rest_taken(play: Play) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwx123456"

    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a")
            await merged(it, "# Tea\n")
            before = await it.files()
            base = (await it.state()).revision
            for path in ("memories/raw_memories/a.md", "sessions/a.jsonl", "memories/../x"):
                await it.edit(path, "mine", base=base)
            await it.edit(HANDBOOK, "x" * (2 << 20), base=base)
            await it.caught_up()
            assert await it.files() == before
            failures = [e for e in await it.events() if isinstance(e, MemoryFailed)]
            assert len(failures) == 4 and all(e.step == "edit" for e in failures)
            await it.edit("memories/notes.md", f"key {secret}\n", base=base)
            await it.until(lambda s: "memories/notes.md" in s.tree, "it is taken")
            assert secret not in await it.text("memories/notes.md")

    play(scene)


def test_an_edit_does_not_bring_a_removed_memory_back(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a")
            await merged(it, "# Tea\n")
            base = (await it.state()).revision
            await it.extracted("more", rollout="b")
            await it.ask()
            await it.merging()
            await delete_scope(it.bus, SCOPE)
            await it.edit(HANDBOOK, "# Tea\n\nmine\n", base=base)
            await it.caught_up()
            assert await it.bus.memories.scopes() == []
            assert await it.objects() == set()
            (failure,) = [e for e in await it.events() if isinstance(e, MemoryFailed)]
            assert "starts again" in failure.error

    play(scene)


# --- undo -----------------------------------------------------------------------------------------


def test_changes_are_undone_one_after_the_other(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a")
            await merged(it, "# Tea\n\ngreen\n")
            state = await it.state()
            first = await it.text(HANDBOOK)
            await it.edit(HANDBOOK, first.replace("green", "black"), base=state.revision)
            state = await it.until(lambda s: s.history[-1].kind == "edit", "it is edited")
            undone = await undo(it.bus, SCOPE, None, by="me")
            assert (undone.kind, undone.by) == ("undo", "me")
            assert undone.note == f"undo of {state.revision}"
            assert await it.text(HANDBOOK) == first
            await undo(it.bus, SCOPE, None, by="me")
            assert not await it.text(HANDBOOK), "the merge made it"
            with pytest.raises(NotInMemory, match="no change that could be undone"):
                await undo(it.bus, SCOPE, None, by="me")
            with pytest.raises(NotInMemory, match="no revision 99"):
                await undo(it.bus, SCOPE, 99, by="me")
            await undo(it.bus, SCOPE, undone.number, by="me")  # an undo can be undone
            assert (await it.kinds())[-3:] == ["undo", "undo", "undo"]

    play(scene)


def test_an_old_change_is_undone_and_what_came_later_stays(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a")
            await merged(it, "# Tea\n\none\n\ntwo\n\nthree\n")
            state = await it.state()
            text = await it.text(HANDBOOK)
            await it.edit(HANDBOOK, text.replace("one", "wrong"), base=state.revision)
            state = await it.until(lambda s: len(s.history) == 2, "it is edited")
            text = await it.text(HANDBOOK)
            await it.edit(HANDBOOK, text.replace("three", "right"), base=state.revision)
            await it.until(lambda s: len(s.history) == 3, "it is edited again")
            await undo(it.bus, SCOPE, state.revision, by="me")
            text = await it.text(HANDBOOK)
            assert "one\n\ntwo\n\nright" in text and "wrong" not in text

    play(scene)


# --- removal --------------------------------------------------------------------------------------


def test_a_removed_rollout_takes_all_along_that_came_of_it(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="keep")
            await merged(it, sourced("keep"))
            gone = await it.extracted("my PIN is 12z4", rollout="bad")
            await merged(it, sourced("keep", "bad"))
            state = await it.state()
            assert len(state.history) == 2
            assert await remove(it.bus, SCOPE, rollouts=["bad"], by="me") == [gone]
            state = await it.state()
            assert list(state.rollouts) == ["keep"] and state.forgotten == [gone]
            assert not [path for path in state.tree if "bad" in path]
            text = await it.text(HANDBOOK)
            assert "fact of bad" not in text and "fact of keep" in text
            assert [r.kind for r in state.history] == ["merge", "remove"]
            for tree in {d for r in state.history for d in (r.before, r.after)} - {""}:
                for path, ref in (await it.bus.memories.get_tree(SCOPE, tree)).items():
                    assert b"fact of bad" not in await it.bus.memories.get(SCOPE, ref), path
            merging = await it.merging()
            started = (await it.bus.log.read(RunId(merging)))[0].event
            assert isinstance(started, RunStarted)
            assert b"Removed" in bytes(started.input[0]) and b"'bad'" in bytes(started.input[0])
            await it.end_phase(merging, completed(), MEMORY=text, memory_summary="Tea.")
            state = await it.until(lambda s: s.merges == 3, "it is consolidated")
            assert state.selected == ["keep"]
            await it.caught_up()
            assert len(await it.objects()) == len(await it.referenced()), "nothing is left behind"

    play(scene)


def test_a_removed_run_does_not_come_back(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            first = await it.extracted("I prefer tea", rollout="c")
            second = await it.ended("my PIN is 12z4", rollout="c")
            phase = await it.extracting(second)
            await remove(it.bus, SCOPE, runs=[second], by="me")
            assert (await it.bus.log.last(it.bus.subjects.cancel(phase))) is not None
            assert "12z4" not in await it.text("sessions/c.jsonl")
            await it.end_phase(phase, completed(raw(FOUND | {"raw_memory": "PIN 12z4"})))
            again = await it.extracting(first)
            started = (await it.bus.log.read(RunId(again)))[0].event
            assert isinstance(started, RunStarted) and b"12z4" not in bytes(started.input[0])
            await it.end_phase(again, completed(raw(FOUND)))
            state = await it.until(lambda s: bool(s.rollouts["c"].slug), "the rest is extracted")
            assert state.rollouts["c"].runs == [first]
            assert not [p for p, data in (await it.files()).items() if b"12z4" in data]
            done = await it.bus.log.last(it.bus.subjects.done(second))
            assert done is not None
            await it.bus.connection.publish(  # as a redelivery would do
                done.subject, done.stored.data, msg_id="again"
            )
            await it.caught_up()
            assert rollout_of(await it.state(), second) is None

    play(scene)


def test_a_consolidation_under_way_is_stopped_by_a_removal(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="keep")
            await it.extracted("my PIN is 12z4", rollout="bad")
            await it.ask()
            merge = await it.merging()
            await remove(it.bus, SCOPE, rollouts=["bad"], by="me")
            await it.end_phase(
                merge, completed(), MEMORY=sourced("keep", "bad"), memory_summary="PIN 12z4"
            )
            second = await it.merging()
            assert second != merge
            await it.end_phase(second, completed(), MEMORY=sourced("keep"), memory_summary="T")
            state = await it.until(lambda s: s.merges == 1, "it is consolidated")
            assert state.selected == ["keep"]
            assert "12z4" not in await it.text(SUMMARY)

    play(scene)


def test_an_edit_from_before_a_removal_is_refused(play: Play) -> None:
    """It would bring back what was removed."""

    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("a", rollout="keep")
            await it.extracted("b", rollout="bad")
            await merged(it, sourced("keep", "bad"))
            base = (await it.state()).revision
            text = await it.text(HANDBOOK)
            await remove(it.bus, SCOPE, rollouts=["bad"], by="me")
            await it.edit(HANDBOOK, text + "\n- more\n", base=base)
            await it.caught_up()
            assert "fact of bad" not in await it.text(HANDBOOK)
            (failure,) = [e for e in await it.events() if isinstance(e, MemoryFailed)]
            assert "bring them back" in failure.error

    play(scene)


def test_only_what_is_there_can_be_removed(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        for unknown in ({"runs": ["nope"]}, {"rollouts": ["nope"]}):
            wanted: dict[str, Any] = unknown
            with pytest.raises(NotInMemory, match="'nope'"):
                await remove(it.bus, SCOPE, **wanted, by="me")
        assert await it.bus.memories.scopes() == []

    play(scene)


# --- bounds ---------------------------------------------------------------------------------------


def test_a_memory_stays_within_its_bytes_and_keeps_the_handbook(play: Play) -> None:
    bound = 40_000

    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            for number in range(8):
                said = f"{number} " + "word " * 1500
                await it.extracted(said, rollout=f"r{number}", use=use(max_bytes=bound))
                if number == 0:
                    await merged(it, sourced("r0"))
            state = await it.state()
            assert sum(ref.size for ref in state.tree.values()) <= bound
            assert "fact of r0" in await it.text(HANDBOOK)
            assert "sessions/r0.jsonl" not in state.tree, "the oldest recording went first"
            assert len([p for p in state.tree if p.startswith("memories/raw_memories/")]) == 8

    play(scene)


def test_the_history_is_bounded_and_takes_its_objects_along(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.actor()
        for number in range(KEPT_REVISIONS + 5):
            await it.edit("memories/notes.md", f"note {number}\n", base=number)
            await it.until(lambda s, number=number: s.revision == number + 1, "it is edited")
        await it.caught_up()
        state = await it.state()
        assert len(state.history) == KEPT_REVISIONS
        assert state.history[0].number == 6
        objects = await it.objects()
        assert len(objects) == 2 * (KEPT_REVISIONS + 1), "a tree and a file for each that is known"

    play(scene)


def test_a_full_store_is_waited_for(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        stream = f"OBJ_{it.bus.topology.memory_bucket}"

        async def limit(max_bytes: int) -> None:
            connection = it.bus.connection
            info = await connection.request(f"$JS.API.STREAM.INFO.{stream}", b"")
            config = json.loads(info.data)["config"] | {"max_bytes": max_bytes}
            reply = await connection.request(
                f"$JS.API.STREAM.UPDATE.{stream}", json.dumps(config).encode()
            )
            assert "error" not in json.loads(reply.data), reply.data

        await limit(1)
        actor = await it.actor()
        run = await it.ended("I prefer tea", rollout="r")

        async def is_in_trouble() -> bool:
            return any(d.held for d in actor._worker.loop._in_flight.values())

        await eventually(is_in_trouble, what="the actor waits for room")
        assert (await it.state()).rollouts == {}
        await limit(-1)
        state = await it.until(lambda s: bool(s.rollouts), "it is noted")
        assert state.rollouts["r"].runs == [run]
        assert await it.bus.parking.list() == []

    play(scene)
