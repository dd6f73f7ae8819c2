"""Edits that are delivered again, that are too big, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from actors.memory.rig import SCOPE, Play, Rig
from actors.memory.test_changes import HANDBOOK, SUMMARY, merged, sourced
from sandstream_actors.memory.changes import TooBig, remove, undo
from sandstream_actors.memory.context import Means
from sandstream_actors.memory.edits import edit
from sandstream_actors.memory.scope.files import KEPT_REVISIONS
from sandstream_bus.wire.memories import EditRequested, FileEdit, MemoryFailed
from sandstream_memory.limits import MAX_HANDBOOK_BYTES, MAX_SUMMARY_BYTES
from sandstream_workspaces.store import WorkspaceStore

from sandstream.testing import ScriptedModel

NOTES = "memories/notes.md"


def means_of(it: Rig) -> Means:
    async def place() -> tuple[str, str]:
        return "local", ""

    return Means(it.bus, WorkspaceStore(it.bus), place, "memory", watch_s=3600.0)


def note(text: str, base: int, run: str = "") -> EditRequested:
    edits = [FileEdit(path=NOTES, data=text.encode())]
    return EditRequested(sandbox="box-2", base=base, edits=edits, run=run)


async def failures(it: Rig) -> list[str]:
    return [e.error for e in await it.events() if isinstance(e, MemoryFailed)]


# --- again ----------------------------------------------------------------------------------------


def test_an_edit_that_was_undone_does_not_come_back_with_its_message(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        request = note("- wrong\n", 0)
        await edit(means_of(it), SCOPE, request, 4242)
        await undo(it.bus, SCOPE, None, "me")
        await edit(means_of(it), SCOPE, request, 4242)  # its acknowledgement was lost
        assert not await it.text(NOTES)
        assert [r.kind for r in (await it.state()).history] == ["edit", "undo"]
        assert await it.kinds() == ["edit", "undo"]

    play(scene)


def test_an_edit_is_known_to_be_done_when_the_history_has_forgotten_it(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        means = means_of(it)
        wrong = note("- wrong\n", 0)
        await edit(means, SCOPE, wrong, 1)
        await undo(it.bus, SCOPE, None, "me")
        for number in range(KEPT_REVISIONS):
            base = (await it.state()).revision
            await edit(means, SCOPE, note(f"- {number}\n", base), 2 + number)
        await edit(means, SCOPE, wrong, 1)
        assert await it.text(NOTES) == f"- {KEPT_REVISIONS - 1}\n"

    play(scene)


def test_an_edit_that_others_had_made_is_not_made_after_their_undo(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        means = means_of(it)
        await edit(means, SCOPE, note("- wrong\n", 0), 1)
        await edit(means, SCOPE, note("- wrong\n", 0), 2)
        assert (await it.state()).revision == 1
        await undo(it.bus, SCOPE, None, "me")
        await edit(means, SCOPE, note("- wrong\n", 0), 2)
        assert not await it.text(NOTES)

    play(scene)


# --- whose ----------------------------------------------------------------------------------------


def test_an_edit_in_a_session_names_the_runs_that_worked_there(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.actor()
        for run, box in (("r1", "box-2"), ("r2", "elsewhere")):
            await it.ended("x", run=run, rollout=run, sandbox=box)
            await it.until(lambda s, run=run: run in s.rollouts, "it is noted")
        await it.edit(NOTES, "- one\n", base=0)
        state = await it.until(lambda s: len(s.history) == 1, "it is edited")
        assert (state.history[0].by, state.history[0].runs) == ("box-2", ["r1"])
        await it.ended("x", run="r3", rollout="r3", sandbox="box-2")
        await it.until(lambda s: "r3" in s.rollouts, "it is noted")
        base = (await it.state()).revision
        await it.edit(NOTES, "- two\n", base=base)
        state = await it.until(lambda s: len(s.history) == 2, "it is edited")
        assert state.history[1].runs == ["r3"], "the first one's change was told before"
        base = state.revision
        await it.edit(NOTES, "- three\n", base=base, runs=["r8", "r9"])
        state = await it.until(lambda s: len(s.history) == 3, "it is edited")
        assert state.history[2].runs == ["r8", "r9"], "the workspace knows better"

    play(scene)


@pytest.mark.parametrize("who", [{"run": "r1"}, {"runs": ["r9", "r1"]}, {}], ids=str)
def test_an_edit_of_a_removed_run_is_refused(play: Play, who: dict[str, Any]) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.actor()
        await it.ended("x", run="r1", rollout="a", sandbox="box-2")
        await it.until(lambda s: bool(s.rollouts), "it is noted")
        await remove(it.bus, SCOPE, runs=["r1"], by="me")
        base = (await it.state()).revision
        await it.edit(NOTES, "- told late\n", base=base, **who)
        await it.caught_up()
        assert NOTES not in (await it.state()).tree
        (failure,) = await failures(it)
        assert "removed from the memory: r1" in failure

    play(scene)


def test_what_a_run_wrote_into_the_memory_is_removed_with_it(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea", rollout="a", run="r1")
            await merged(it, sourced("a"))
            await it.extracted("My PIN is 12z4", rollout="b", run="r2")
            for path, who in ((HANDBOOK, {"run": "r2"}), (SUMMARY, {"runs": ["r2"]})):
                state = await it.state()
                text = await it.text(path) + "\n- the PIN is 12z4\n"
                await it.edit(path, text, base=state.revision, **who)
                await it.until(lambda s, n=len(state.history): len(s.history) > n, "edited")
            state = await it.state()
            text = await it.text(HANDBOOK) + "\n- by somebody else\n"
            await it.edit(HANDBOOK, text, base=state.revision, run="r3")
            await it.until(lambda s, n=len(state.history): len(s.history) > n, "edited")
            await remove(it.bus, SCOPE, runs=["r2"], by="me")
            state = await it.state()
            assert "fact of a" in await it.text(HANDBOOK)
            assert "by somebody else" in await it.text(HANDBOOK)
            assert not [p for p, data in (await it.files()).items() if b"12z4" in data]
            assert [r.kind for r in state.history] == ["merge", "remove"]
            assert len(await it.objects()) == len(await it.referenced())

    play(scene)


def test_a_run_that_only_wrote_into_the_memory_can_be_removed(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await edit(means_of(it), SCOPE, note("- good\n", 0, run="r1"), 1)
        await edit(means_of(it), SCOPE, note("- good\n- the PIN is 12z4\n", 1, run="r2"), 2)
        assert await remove(it.bus, SCOPE, runs=["r2"], by="me") == ["r2"]
        assert await it.text(NOTES) == "- good\n"
        assert (await it.state()).forgotten == ["r2"]
        assert await remove(it.bus, SCOPE, runs=["r2"], by="me") == [], "it is done"

    play(scene)


# --- how big --------------------------------------------------------------------------------------


def test_an_edit_beyond_the_bounds_of_a_file_is_refused(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        means = means_of(it)
        edits = [
            FileEdit(path=HANDBOOK, data=b"- line\n" * 100_000),
            FileEdit(path=SUMMARY, data=b"- line\n" * 10_000),
            FileEdit(path=NOTES, data=b"- fine\n"),
        ]
        request = EditRequested(sandbox="box-2", base=0, edits=edits)
        await edit(means, SCOPE, request, 1)
        assert sorted(await it.files()) == [NOTES]
        told = await failures(it)
        assert [str(n) in it for n, it in zip((700_000, 70_000), told, strict=True)] == [True, True]
        assert str(MAX_HANDBOOK_BYTES) in told[0] and str(MAX_SUMMARY_BYTES) in told[1]
        await edit(means, SCOPE, request, 1)
        assert await failures(it) == told

    play(scene)


def test_an_undo_beyond_the_bounds_of_a_file_is_refused(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        means = means_of(it)

        async def told(text: str, sequence: int) -> None:
            edits = [FileEdit(path=SUMMARY, data=text.encode())]
            base = (await it.state()).revision
            await edit(means, SCOPE, EditRequested(sandbox="b", base=base, edits=edits), sequence)

        lines = "".join(f"- number {n} of many lines\n" for n in range(2000))
        await told(lines, 1)
        await told("- short\n", 2)
        await told("- short\n" + "".join(f"- another {n}\n" for n in range(1000)), 3)
        assert len(await it.text(SUMMARY)) + len(lines) > MAX_SUMMARY_BYTES
        with pytest.raises(TooBig, match=str(MAX_SUMMARY_BYTES)):
            await undo(it.bus, SCOPE, 2, "me")
        assert len((await it.state()).history) == 3

    play(scene)
