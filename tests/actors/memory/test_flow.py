"""From the end of a run to the handbook, step by step."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from actors.memory.rig import (
    FOUND,
    MERGE,
    NOTHING,
    Play,
    Rig,
    bodies,
    extracts,
    merges,
    use,
)
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.specs import RunOptions
from sandstream_bus.wire.subjects import RunId

from sandstream.testing import ScriptedModel

HANDBOOK, SUMMARY = "memories/MEMORY.md", "memories/memory_summary.md"


def test_a_run_becomes_a_memory_and_the_memory_a_handbook(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.sandboxes()
        await it.actor()
        run = await it.ended("I prefer tea", rollout="chat:1", use=use(eager=True))
        state = await it.settled(run)
        (rollout,) = state.rollouts.values()
        assert (rollout.id, rollout.runs, rollout.extracted) == ("chat:1", [run], 1)
        assert rollout.is_merged and not rollout.extracting
        files = await it.files()
        assert set(files) == {
            HANDBOOK,
            SUMMARY,
            "memories/raw_memories.md",
            f"memories/raw_memories/{rollout.name}.md",
            f"memories/rollout_summaries/{rollout.name}_tea-orders.md",
            "memories/phase_two_selection.json",
            f"sessions/{rollout.name}.jsonl",
        }
        assert b"prefers tea" in files[f"memories/raw_memories/{rollout.name}.md"]
        assert f"runs: {run}".encode() in files[f"memories/raw_memories/{rollout.name}.md"]
        assert b"# Drinks" in files[HANDBOOK] and files[SUMMARY].startswith(b"Tea.")
        (segment,) = map(json.loads, files[f"sessions/{rollout.name}.jsonl"].splitlines())
        assert segment["input"][0]["content"] == "I prefer tea"
        assert segment["terminal_metadata"]["terminal_state"] == "completed"
        (revision,) = state.history
        assert (revision.kind, revision.runs) == ("merge", [run])
        await it.caught_up()
        assert await it.kinds() == ["noted", "extracted", "merge"]
        assert (state.merges, state.merging, state.selected) == (1, None, ["chat:1"])
        (extraction,) = bodies(model, "gpt-small")
        assert "tools" not in extraction or extraction["tools"] == []
        assert "I prefer tea" in json.dumps(extraction["input"])
        assert extraction["text"]["format"]["strict"] is True
        first, _ = bodies(model, "gpt-big")
        assert [tool["name"] for tool in first["tools"]] == [
            "exec_command",
            "write_stdin",
            "apply_patch",
        ]
        assert MERGE in json.dumps(first["input"])
        assert await it.bus.parking.list() == []

    play(scene, extracts("I prefer tea"), merges("# Drinks"))


def test_a_phase_is_traced_and_budgeted_like_the_run_it_is_for(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        options = RunOptions(trace_contents=False, group_id="g")
        run = await it.ended("I prefer tea", pool="own", options=options)
        await it.harness(pool="own")
        await it.actor()
        await it.until(lambda state: state.revision >= 2, "it is extracted")
        (phase,) = await it.phase_runs("extract")
        first = (await it.bus.log.read(RunId(phase)))[0]
        started = first.event
        assert isinstance(started, RunStarted)
        assert started.pool == "own", "by the harness, so the model provider, of the run itself"
        part = started.options.memory
        assert part is not None
        assert (part.step, part.origin, part.attempt) == ("extract", run, 1)
        assert (started.options.trace_contents, started.options.group_id) == (False, "g")
        assert started.options.budget is not None and started.options.max_turns == 1
        assert first.stored.headers["traceparent"]

    play(scene, extracts("I prefer tea"))


def test_nothing_worth_keeping_is_nothing_kept(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.actor()
        run = await it.ended("hello", use=use(eager=True))
        state = await it.settled(run)
        (rollout,) = state.rollouts.values()
        assert rollout.empty and rollout.extracted == 1
        assert list(state.tree) == [f"sessions/{rollout.name}.jsonl"]
        await it.caught_up()
        assert (await it.events())[-1].empty is True  # type: ignore[union-attr]

    play(scene, extracts("hello", NOTHING))


def test_secrets_of_a_run_reach_neither_a_model_nor_a_file(play: Play) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwx123456"

    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.actor()
        call = {"type": "function_call", "name": "f", "call_id": "c1", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": f"key {secret}"}
        run = await it.ended(f"my key is {secret}", items=[call, output], answer=f"ok {secret}")
        await it.until(lambda state: len(state.tree) == 3, "it is extracted")
        assert secret not in json.dumps(bodies(model, "gpt-small"))
        for path, data in (await it.files()).items():
            assert secret.encode() not in data, path
        assert run

    found = FOUND | {"raw_memory": f"The key is {secret}", "rollout_summary": f"Key {secret}"}
    play(scene, extracts("my key is", found))


def test_runs_of_a_conversation_are_one_rollout_that_is_extracted_again(
    play: Play,
) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.actor()
        first = await it.ended("I prefer tea", rollout="c")
        await it.until(lambda state: len(state.tree) == 3, "the first is extracted")
        second = await it.ended("no, coffee now", rollout="c")
        state = await it.until(
            lambda state: state.rollouts["c"].extracted == 2, "both are extracted"
        )
        assert state.rollouts["c"].runs == [first, second]
        assert set(state.tree) == {
            "sessions/c.jsonl",
            "memories/raw_memories/c.md",
            "memories/rollout_summaries/c_coffee.md",
        }, "the summary with the old slug is gone"
        lines = (await it.text("sessions/c.jsonl")).splitlines()
        assert [json.loads(line)["run"] for line in lines] == [first, second]
        assert len(await it.objects()) == len(state.tree), "replaced files are removed"

    other = FOUND | {"rollout_slug": "coffee"}
    play(scene, extracts("I prefer tea"), extracts("no, coffee now", other))


def test_a_full_batch_is_consolidated(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.sandboxes()
        await it.actor()
        one = await it.ended("I prefer tea", use=use(batch_size=2))
        state = await it.until(lambda state: len(state.tree) == 3, "one is extracted")
        await it.caught_up()
        assert state.merging is None and not await it.phase_runs("merge")
        two = await it.ended("I prefer tea, really", use=use(batch_size=2))
        state = await it.settled(one, two)
        assert len(await it.phase_runs("merge")) == 1
        assert sorted(state.history[0].runs) == sorted([one, two])
        assert all(rollout.is_merged for rollout in state.rollouts.values())

    play(scene, extracts("I prefer tea"), merges("# Drinks"))


def test_a_quiet_time_is_enough(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.sandboxes()
        await it.actor()
        run = await it.ended("I prefer tea", use=use(quiet_s=0.1))
        state = await it.settled(run)
        assert state.history[0].note == "quiet"

    play(scene, extracts("I prefer tea"), merges("# Drinks"))


def test_whoever_asks_gets_all_of_it_in_one_merge(play: Play) -> None:
    """Also what is not extracted when he asks, and however often he does."""

    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.sandboxes()
        await it.actor()
        runs = [await it.ended(f"I prefer tea {number}") for number in range(5)]
        await it.until(
            lambda state: sum(bool(r.extracting) for r in state.rollouts.values()) == 5,
            "all are being extracted",
        )
        await asyncio.gather(*(it.ask() for _ in range(3)))
        await it.until(lambda state: state.wanted == "asked", "it is wanted")
        await it.harness()
        state = await it.settled(*runs)
        assert sorted(state.history[0].runs) == sorted(runs)
        assert len(await it.phase_runs("merge")) == 1
        assert len(bodies(model, "gpt-small")) == 5

    play(scene, extracts("I prefer tea"), merges("# Drinks"))


def test_who_asks_may_be_quicker_than_the_note_of_a_run(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.sandboxes()
        await it.actor()
        await it.ask("closed")
        await it.caught_up()
        run = await it.ended("I prefer tea")
        state = await it.settled(run)
        assert (state.history[0].note, state.wanted) == ("closed", "")

    play(scene, extracts("I prefer tea"), merges("# Drinks"))


def test_two_replicas_and_many_runs_at_once(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.harness()
        await it.sandboxes()
        await it.actor()
        await it.actor()
        runs = await asyncio.gather(
            *(it.ended(f"I prefer tea {n}", run=f"r{n}") for n in range(20))
        )
        await it.until(lambda state: len(state.rollouts) == 20, "all are noted")
        await it.ask()
        state = await it.until(
            lambda state: (
                len(state.rollouts) == 20
                and all(rollout.is_merged for rollout in state.rollouts.values())
            ),
            "all are in the handbook",
        )
        assert len(bodies(model, "gpt-small")) == 20, "each was extracted once"
        assert sorted(run for it in state.history for run in it.runs) == sorted(runs)
        assert len(await it.phase_runs("merge")) == state.merges

    play(scene, extracts("I prefer tea"), merges("# Drinks"))


@pytest.mark.parametrize("status", ["failed", "cancelled", "max_turns", "guardrail", "budget"])
def test_runs_that_did_not_succeed_are_remembered_too(play: Play, status: Any) -> None:
    import msgspec
    from actors.memory.rig import failed

    async def scene(it: Rig, model: ScriptedModel) -> None:
        await it.actor()
        done = msgspec.structs.replace(failed("boom", "it broke"), status=status)
        await it.ended("do it", done=done)
        state = await it.until(lambda state: state.revision, "it is noted")
        (rollout,) = state.rollouts.values()
        (line,) = (await it.text(f"sessions/{rollout.name}.jsonl")).splitlines()
        terminal = json.loads(line)["terminal_metadata"]
        assert terminal["exception_message"] == "it broke"
        assert terminal["terminal_state"] == rollout.terminal_state != "completed"

    play(scene)


def test_only_what_belongs_to_memories_is_looked_at(play: Play) -> None:
    async def scene(it: Rig, model: ScriptedModel) -> None:
        from support.runs import done, new_run, started

        await it.actor()
        run = new_run()
        start = it.bus.subjects.start(run, "main")
        after = await it.bus.log.append(run, start, started(), after=0, msg_id="1")
        await it.bus.log.append(run, it.bus.subjects.done(run), done(), after=after, msg_id="2")
        await it.caught_up()
        assert await it.bus.memories.scopes() == []
        assert await it.bus.parking.list() == []

    play(scene)
