"""What of removed runs is left: in the history, in the store, after somebody died."""

from __future__ import annotations

import msgspec
from actors.memory.rig import SCOPE, Play, Rig
from actors.memory.test_changes import HANDBOOK, merged
from actors.memory.test_edits import means_of, note
from sandstream_actors.memory.changes import remove
from sandstream_actors.memory.edits import edit
from sandstream_actors.memory.scope.files import KEPT_REVISIONS, change, load, with_files
from sandstream_actors.memory.sweep import Sweeper
from sandstream_bus.wire.memories import MemoryState, Merge, Rollout, Unfinished
from support.waiting import eventually

from sandstream.testing import ScriptedModel

FACT = "# Secret\n\n- the fact\n\nSources: rollout_summaries/a_tea-orders.md\n"


async def holding(it: Rig, text: bytes) -> int:
    """How many trees of the history hold this."""
    found = 0
    for revision in (await it.state()).history:
        for digest in (revision.before, revision.after):
            files = await load(it.bus, SCOPE, await it.bus.memories.get_tree(SCOPE, digest))
            found += any(text in data for data in files.values())
    return found


def test_the_history_of_a_rollout_that_has_grown_since_goes_with_it(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("a secret", rollout="a", run="r1")
            await merged(it, FACT)
            for number in range(KEPT_REVISIONS):  # the merge leaves the history
                base = (await it.state()).revision
                await edit(means_of(it), SCOPE, note(f"- {number}\n", base, run="r9"), number + 1)
            await it.extracted("more", rollout="a", run="r2")
            assert await holding(it, b"the fact") == 2 * KEPT_REVISIONS
            await remove(it.bus, SCOPE, runs=["r1"], by="me")
            assert await holding(it, b"the fact") == 0
            assert "the fact" not in await it.text(HANDBOOK)
            assert len((await it.state()).history) == 1

    play(scene)


def test_a_second_merge_does_not_hide_the_first(play: Play) -> None:
    """It names the run, too; but the history from before it holds what came of the first."""

    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("other", rollout="b", run="r0")
            await merged(it, "# Other\n\n- kept\n\nSources: rollout_summaries/b_tea-orders.md\n")
            await it.extracted("a secret", rollout="a", run="r1")
            await merged(it, FACT)
            await it.extracted("more", rollout="a", run="r2")
            await merged(it, FACT)
            state = await it.state()
            assert state.rollouts["a"].first_merged == state.history[1].number
            left = [state.history[0], *state.history[2:]]

            async def decide(state: MemoryState) -> MemoryState:
                return msgspec.structs.replace(state, history=left)

            await it.bus.memories.change(SCOPE, decide)
            await remove(it.bus, SCOPE, rollouts=["a"], by="me")
            assert await holding(it, b"the fact") == 0
            assert [r.kind for r in (await it.state()).history] == ["merge", "remove"]

    play(scene)


def test_who_is_late_to_remove_an_object_does_not_take_it_from_who_names_it_again(
    play: Play,
) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await edit(means_of(it), SCOPE, note("- one\n", 0), 1)
        one = (await it.state()).tree["memories/notes.md"].digest
        outdated = await it.bus.memories.objects(SCOPE).places([one])

        async def drop(state: MemoryState) -> MemoryState:
            """As somebody does who stops for a while before he removes it."""
            return msgspec.structs.replace(state, tree={}, history=[], outdated=outdated)

        await it.bus.memories.change(SCOPE, drop)

        async def name_again(state: MemoryState) -> MemoryState:
            tree = await with_files(it.bus, SCOPE, {}, {"memories/notes.md": b"- one\n"})
            return msgspec.structs.replace(state, tree=tree)

        other = await it.new_bus()
        state = await change(other, SCOPE, name_again)
        assert state.tree["memories/notes.md"].digest == one
        await it.bus.memories.discard(SCOPE, outdated)  # the first one goes on
        assert await it.text("memories/notes.md") == "- one\n"

    play(scene)


# --- what dead processes left ---------------------------------------------------------------------


def test_a_sweep_clears_away_what_no_state_names(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        memories = it.bus.memories
        await edit(means_of(it), SCOPE, note("- one\n", 0), 1)
        await edit(means_of(it), SCOPE, note("- two\n", 1), 2)
        named = await it.referenced()
        for scope in (SCOPE, "never was", "x" * 300):
            await memories.put(scope, b"stored by somebody who died")
        await Sweeper(it.bus, every_s=3600).sweep()
        assert len(await it.objects()) == len(named) + 3, "somebody may be about to name them"
        await Sweeper(it.bus, every_s=3600, grace_s=0.0).sweep()
        assert await memories.stored() == {SCOPE: named}
        assert await memories.scopes() == [SCOPE]
        assert await it.text("memories/notes.md") == "- two\n"
        assert (await it.state()).revision == 2
        await edit(means_of(it), SCOPE, note("stored by somebody who died", 2), 3)
        assert await it.text("memories/notes.md") == "stored by somebody who died"

    play(scene)


def test_a_sweep_keeps_a_big_state_and_what_a_consolidation_works_on(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        rollouts = {f"r{n}": Rollout(id=f"r{n}", name="n" * 200) for n in range(1500)}
        copied = await it.bus.memories.put(SCOPE, b"seen by the consolidation")
        base = await it.bus.memories.put_tree(SCOPE, {"memories/notes.md": copied})
        merging = Merge(number=1, run="m", sandbox="s", base=base, selected=[])

        async def decide(state: MemoryState) -> MemoryState:
            return msgspec.structs.replace(state, rollouts=rollouts, merging=merging)

        await it.bus.memories.change(SCOPE, decide)
        before = await it.bus.memories.stored()
        await Sweeper(it.bus, every_s=3600, grace_s=0.0).sweep()
        assert await it.bus.memories.stored() == before
        assert len(before[SCOPE]) == 3

    play(scene)


def test_a_sweep_clears_away_parts_of_objects(play: Play) -> None:
    """Of an object whose record is gone, or was never written."""

    async def scene(it: Rig, model: ScriptedModel) -> None:
        bucket = it.bus.topology.memory_bucket
        lost = f"$O.{bucket}.C.lost"
        await it.bus.connection.publish(lost, b"the PIN is 12z4", msg_id="lost")
        await edit(means_of(it), SCOPE, note("- one\n", 0), 1)

        async def chunks() -> list[str]:
            stream, every = f"OBJ_{bucket}", f"$O.{bucket}.C.>"
            return await it.bus.topology.subjects_of(it.bus.connection, stream, every)

        await Sweeper(it.bus, every_s=3600).sweep()
        assert lost in await chunks()
        await Sweeper(it.bus, every_s=3600, grace_s=0.0).sweep()
        left = await chunks()
        assert lost not in left and len(left) == len(await it.referenced())
        assert await it.text("memories/notes.md") == "- one\n"

    play(scene)


def test_an_actor_that_nobody_asks_finishes_what_somebody_left(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await edit(means_of(it), SCOPE, note("- one\n", 0), 1)
        gone = Unfinished(kind="delete", revision=1, at="")

        async def emptied(state: MemoryState) -> MemoryState:
            outdated = await it.bus.memories.all_of(SCOPE)
            return MemoryState(scope=SCOPE, outdated=outdated, unfinished=gone)

        await it.bus.memories.change(SCOPE, emptied)
        await it.actor(sweep_every_s=0.05)

        async def is_gone() -> bool:
            return not await it.objects() and not await it.bus.memories.scopes()

        await eventually(is_gone, what="the rest of the memory is gone")

    play(scene)
