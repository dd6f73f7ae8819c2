"""A request that is delivered again, long after it was done: a killed server forgets who has
acknowledged what in its last moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from actors.memory.rig import FOUND, SCOPE, Rig, extracts, merges, rig, use
from sandstream_actors.memory.consolidation import Consolidations
from sandstream_actors.memory.context import Means
from sandstream_actors.memory.extraction import Extractions
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.memories import ExtractRequested, MergeRequested
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer

from sandstream.testing import Conversation, ScriptedModel

Scene = Callable[[Rig], Awaitable[None]]
HANDBOOK = "memories/MEMORY.md"


@pytest.fixture
def play(nats_server: NatsServer, tmp_path: Path) -> Callable[..., None]:
    def play(scene: Scene, *conversations: Conversation) -> None:
        async def main() -> None:
            async with (
                ScriptedModel(conversations=conversations, strict=False) as model,
                rig(nats_server, tmp_path / "home", model) as it,
            ):
                await scene(it)

        asyncio.run(main())

    return play


def means_of(it: Rig) -> Means:
    async def place() -> tuple[str, str]:
        return "local", ""

    return Means(it.bus, WorkspaceStore(it.bus), place, "memory", watch_s=3600.0)


async def first_place(it: Rig, subject: str) -> int:
    found = await stale_many(it.bus.connection, it.bus.topology.log, subject, after=0)
    return found[0].sequence


def test_a_merge_that_is_over_is_not_taken_for_one_of_what_has_come_since(
    play: Callable[..., None],
) -> None:
    async def scene(it: Rig) -> None:
        await it.harness()
        await it.sandboxes()
        await it.actor()
        one = await it.ended("I prefer tea", rollout="one", use=use(batch_size=1))
        await it.settled(one)
        await it.ended("I prefer tea, too", rollout="two", use=use(batch_size=9))
        before = await it.until(
            lambda state: "two" in state.rollouts and state.rollouts["two"].extracted,
            "the second is extracted",
        )
        await it.caught_up()
        sequence = await first_place(it, it.bus.subjects.memory_merge(SCOPE))
        await Consolidations(means_of(it)).begin(
            SCOPE, MergeRequested(reason="batch"), sequence, is_redriven=False
        )
        state = await it.state()
        assert state.merging is None and state.merges == 1
        assert not state.rollouts["two"].is_merged
        assert state.tree[HANDBOOK] == before.tree[HANDBOOK]

    play(scene, extracts("I prefer tea"), merges("# Drinks"))


def test_an_extraction_that_failed_is_not_taken_for_its_next_try(play: Callable[..., None]) -> None:
    async def scene(it: Rig) -> None:
        await it.harness()
        await it.actor(backoff_s=[3600.0])
        await it.ended("I prefer tea", rollout="one")
        await it.until(
            lambda state: state.rollouts["one"].problem if state.rollouts else False, "it failed"
        )
        await it.caught_up()
        sequence = await first_place(it, it.bus.subjects.memory_extract(SCOPE))
        request = ExtractRequested(rollout="one", runs=1)
        await Extractions(means_of(it)).begin(SCOPE, request, sequence, is_redriven=False)
        rollout = (await it.state()).rollouts["one"]
        assert (rollout.extracting, rollout.attempt) == ("", 1)

    play(scene, extracts("I prefer tea", FOUND | {"more": "fields"}))
