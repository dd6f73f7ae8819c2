"""When a consolidation begins, whom it waits for, and who waits for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from actors.memory.rig import (
    FOUND,
    NOTHING,
    SCOPE,
    Play,
    Rig,
    completed,
    failed,
    raw,
    rollout_of,
    use,
)
from sandstream_actors.memory.changes import undo
from sandstream_actors.memory.freshness import has_reached, is_settled, marks_of
from sandstream_actors.memory.scope.pending_work import ENOUGH, is_held_up, why_now
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.memories import FileRef, MemoryState, Merge, MergeRequested, Rollout
from sandstream_bus.wire.subjects import RunId
from sandstream_memory.layout import raw_path, rollout_path

from sandstream.testing import ScriptedModel

EAGER = use(eager=True)
REF = FileRef(digest="0" * 64, size=1)
READY: dict[str, Any] = {"extracted": 1, "slug": "s"}
UNDER_WAY: dict[str, Any] = {"extracting": "memory-extract-1", "attempt": 1}
ASIDE: dict[str, Any] = {"attempt": 1, "problem": "model.failed: no"}


def state_of(*rollouts: dict[str, Any], **more: Any) -> MemoryState:
    """A scope with these rollouts, r0, r1, … of one run each."""
    made = [
        Rollout(id=f"r{n}", name=f"r{n}", runs=[f"run{n}"], **it) for n, it in enumerate(rollouts)
    ]
    tree = {raw_path(it.name): REF for it in made if it.slug}
    return MemoryState(
        scope=SCOPE, tree=tree, rollouts={it.id: it for it in made}, use=EAGER, **more
    )


# --- decisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        ({}, True),
        (UNDER_WAY, True),
        (UNDER_WAY | {"is_slow": True}, False),
        (ASIDE, False),
        ({"problem": "given up"}, False),
        (READY | {"is_merged": True}, False),
        ({"extracted": 1, "empty": True}, False),
    ],
    ids=["asked", "under way", "slow", "failed", "given up", "merged", "empty"],
)
def test_a_consolidation_waits_for_what_comes_at_once(other: dict[str, Any], waits: bool) -> None:
    state = state_of(READY, other)
    assert is_held_up(state) == waits
    assert why_now(state) == ("" if waits else "eager")


def test_many_that_are_ready_wait_for_nobody() -> None:
    assert is_held_up(state_of(*[READY] * (ENOUGH - 1), UNDER_WAY))
    assert not is_held_up(state_of(*[READY] * ENOUGH, UNDER_WAY))


def test_who_waits_for_a_run_does_not_wait_for_others() -> None:
    merged = READY | {"is_merged": True}
    state = state_of(merged, UNDER_WAY, READY, {"problem": "given up"}, selected=["r0"])
    merging = Merge(number=1, run="m", sandbox="s", base="b", selected=["r2"])
    state = msgspec.structs.replace(state, merging=merging)
    runs = [f"run{n}" for n in range(5)]
    assert [it for it in runs if is_settled(state, it)] == ["run0", "run3"]
    assert not is_settled(state)


def test_what_comes_after_somebody_asked_is_not_waited_for() -> None:
    before = state_of(READY, selected=["gone"])
    marks = marks_of(before)
    assert marks == {"r0": 1, "gone": 0} and not has_reached(before, marks)
    after = state_of(READY | {"is_merged": True}, UNDER_WAY, READY, selected=["r0"])
    assert has_reached(after, marks) and not is_settled(after)
    grown = msgspec.structs.replace(after.rollouts["r0"], runs=["run0", "run9"])
    after = msgspec.structs.replace(after, rollouts=after.rollouts | {"r0": grown})
    assert has_reached(after, marks), "a later run of the same rollout"


# --- on the bus -----------------------------------------------------------------------------------


def test_a_rollout_that_fails_holds_up_nobody(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor(backoff_s=(3600.0,))
            bad = await it.ended("I break", use=EAGER)
            good = await it.ended("I prefer tea", use=EAGER)
            extracting = await it.extracting(bad)
            await it.end_phase(await it.extracting(good), completed(raw(FOUND)))
            await it.until(lambda s: rollout_of(s, good).extracted, "the good one is extracted")
            await it.end_phase(extracting, failed("model.failed", "no"))
            merge = await it.merging()
            await it.end_phase(merge, completed(), MEMORY="# Tea\n", memory_summary="Tea.\n")
            state = await it.until(lambda s: s.merges == 1, "it is consolidated")
            assert is_settled(state, good) and not is_settled(state, bad)

    play(scene)


@pytest.mark.parametrize("reason", ["asked", "closed", "again"])
def test_whoever_insists_gets_what_was_still_extracted_when_it_began(
    play: Play, reason: str
) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        made: dict[str, str] = {"MEMORY": "# Tea\n", "memory_summary": "Tea.\n"}
        async with it.served("harness-memory"):
            await it.actor()
            for n in range(ENOUGH):
                await it.extracted(f"I prefer tea {n}")
            last = await it.extracting(await it.ended("And milk"))
            await it.ask(reason)
            await it.end_phase(await it.merging(), completed(), **made)
            await it.until(lambda s: s.merges == 1 and s.merging is None, "the first is done")
            await it.end_phase(last, completed(raw(FOUND)))
            await it.end_phase(await it.merging(), completed(), **made)
            state = await it.until(lambda s: s.merges == 2 and s.merging is None, "and the rest")
            assert all(each.is_merged for each in state.rollouts.values())
            await it.caught_up()
            assert len(await it.phase_runs("merge")) == 2, "and nothing more"

    play(scene)


def test_an_extraction_that_takes_long_holds_up_nobody(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor(watch_s=0.2)
            slow = await it.ended("Take your time", use=EAGER)
            await it.extracting(slow)
            await it.extracted("I prefer tea", use=EAGER)
            merge = await it.merging()
            await it.end_phase(merge, completed(), MEMORY="# Tea\n", memory_summary="Tea.\n")
            state = await it.until(lambda s: s.merges == 1, "it is consolidated")
            assert rollout_of(state, slow).is_slow

    play(scene)


def test_a_retry_comes_though_something_is_extracted_meanwhile(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor(backoff_s=(0.02,))
            await it.extracted("I prefer tea", use=EAGER)
            first = await it.merging()
            await it.extracting(await it.ended("And milk", use=EAGER))
            await it.end_phase(first, failed("model.failed", "no"))
            await it.until(
                lambda s: s.merging is not None and s.merging.attempt == 2, "it is tried again"
            )

    play(scene)


def test_what_was_undone_is_consolidated_again_if_somebody_wants_it(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        async with it.served("harness-memory"):
            await it.actor()
            await it.extracted("I prefer tea")
            await it.ask()
            made: dict[str, str] = {"MEMORY": "# Tea\n", "memory_summary": "Tea.\n"}
            first = await it.merging()
            await it.end_phase(first, completed(), **made)
            await it.until(lambda s: s.merges == 1, "it is consolidated")
            await undo(it.bus, SCOPE, None, "ada")
            await it.ask()
            await it.caught_up()
            state = await it.state()
            assert state.merging is None and state.wanted == "asked", "nothing is new"
            await it.ask("again")
            again = await it.merging()
            started = RunState.of(RunId(again), await it.bus.log.read(RunId(again))).started
            assert started is not None and "run-run1" in str(bytes(started.input[0]))
            await it.end_phase(again, completed(), **made)
            await it.until(lambda s: s.merges == 2 and s.merging is None, "it is done again")
            assert "# Tea" in await it.text("memories/MEMORY.md")

    play(scene)


def test_no_transcript_is_lost_while_it_waits_to_be_read(play: Play) -> None:
    """Runs that ended while nobody was there, bigger than the memory may be."""

    async def scene(it: Rig, model: ScriptedModel) -> None:
        small = use(eager=False, max_bytes=1024 * 1024)
        said = "x" * 200_000
        runs = [await it.ended(f"{n}: {said}", use=small) for n in range(8)]
        async with it.served("harness-memory"):
            await it.actor()
            phases = [await it.extracting(run) for run in runs]
            state = await it.state()
            assert not any(each.problem for each in state.rollouts.values())
            assert all(rollout_path(each.name) in state.tree for each in state.rollouts.values())
            for phase in phases:
                await it.end_phase(phase, completed(raw(FOUND)))
            state = await it.until(
                lambda s: all(each.extracted for each in s.rollouts.values()), "all are extracted"
            )
            assert sum(ref.size for ref in state.tree.values()) <= small.max_bytes
            assert all(raw_path(each.name) in state.tree for each in state.rollouts.values())

    play(scene)


def test_rollouts_that_teach_nothing_do_not_pile_up(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        few = use(max_raw_memories=1)
        async with it.served("harness-memory"):
            await it.actor()
            for n in range(7):
                phase = await it.extracting(await it.ended(f"hello {n}", use=few))
                await it.end_phase(phase, completed(raw(NOTHING)))
                await it.until(
                    lambda s: all(each.extracted for each in s.rollouts.values()), "it is read"
                )
            state = await it.state()
            assert list(state.rollouts) == [f"run-run{n}" for n in range(4, 8)]
            assert set(state.tree) == {rollout_path(name) for name in state.rollouts}

    play(scene)


def test_a_long_name_that_was_asked_for_first_is_known_with_its_first_run(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        name = "user " * 100
        async with it.served("harness-memory"):
            await it.actor()
            await it.bus.memories.send(
                it.bus.subjects.memory_merge(name), MergeRequested(reason="asked"), msg_id="early"
            )
            await it.caught_up()
            await it.extracting(await it.ended("I prefer tea", use=use(scope=name)), name)
            assert (await it.state(name)).scope == name

    play(scene)
