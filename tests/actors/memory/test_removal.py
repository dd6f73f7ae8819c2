"""What of removed runs is left: in the history, in the store, after somebody died."""

from __future__ import annotations

import msgspec
from actors.memory.rig import SCOPE, Play, Rig
from actors.memory.test_changes import HANDBOOK, merged
from actors.memory.test_edits import means_of, note
from sandstream_actors.memory.changes import remove
from sandstream_actors.memory.edits import edit
from sandstream_actors.memory.files import KEPT_REVISIONS, load
from sandstream_bus.memory_messages import MemoryState

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
