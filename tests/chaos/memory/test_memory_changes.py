"""kill -9 during a removal from a memory or an undo: the next process completes it. Nothing of what
was removed stays in the store, and the consequences are announced once.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from actors.memory.rig import SCOPE, Rig, rig
from chaos.memory.cells import ChangeCell, change_cells
from chaos.memory.scene import MemoryScene
from chaos.processes import Program
from sandstream_actors.memory.scope.files import change, replaced, revised, with_files
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.memories import ExtractRequested, MemoryState, Merge, Rollout
from sandstream_bus.wire.messages import CancelRequested
from support.nats_server import NatsServer
from support.waiting import eventually

from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(180)

ALL = change_cells()
SECRET = b"the PIN is 1234"
HANDBOOK = "memories/MEMORY.md"
IDS = {"run": "r2", "rollout": "bad", "scope": "", "undo": "2"}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """All cells in parallel, each in its own installation."""
    directory = tmp_path_factory.mktemp("cells")
    server = NatsServer(directory / "nats")

    async def main() -> dict[str, list[str]]:
        gate = asyncio.Semaphore(6)

        async def gated(cell: ChangeCell) -> list[str]:
            async with gate:
                return await _cell(cell, server, directory, model)

        async with ScriptedModel(strict=False) as model:
            found = await asyncio.gather(*map(gated, ALL))
        return dict(zip((it.name for it in ALL), found, strict=True))

    server.start()
    try:
        return asyncio.run(main())
    finally:
        server.kill()


async def remember(it: Rig) -> None:
    """A memory of two rollouts; the second one has a secret, and is being consolidated."""

    async def first(state: MemoryState) -> MemoryState:
        files = {HANDBOOK: b"# Tea\n", "sessions/keep.jsonl": b'{"run":"r1"}\n'}
        tree = await with_files(it.bus, SCOPE, {}, files)
        rollouts = {"keep": Rollout(id="keep", name="keep", runs=["r1"], extracted=1)}
        new = replaced(state, rollouts=rollouts, selected=["keep"])
        return await revised(it.bus, new, tree, "merge", by="m1", runs=["r1"])

    async def second(state: MemoryState) -> MemoryState:
        bad = b"# Tea\n# Bad\n- " + SECRET + b"\n\nSources: rollout_summaries/bad_slug.md\n"
        files = {
            HANDBOOK: bad,
            "sessions/bad.jsonl": b'{"run":"r2","said":"' + SECRET + b'"}\n',
            "memories/raw_memories/bad.md": SECRET,
            "memories/rollout_summaries/bad_slug.md": SECRET,
        }
        tree = await with_files(it.bus, SCOPE, state.tree, files)
        rollout = Rollout(
            id="bad",
            name="bad",
            runs=["r2"],
            extracted=1,
            slug="slug",
            summary_file="rollout_summaries/bad_slug.md",
            is_merged=True,
        )
        base = await it.bus.memories.put_tree(SCOPE, tree)
        merging = Merge(number=3, run="m3", sandbox="s", base=base, selected=["bad"])
        new = replaced(state, rollouts={**state.rollouts, "bad": rollout}, merging=merging)
        return await revised(it.bus, new, tree, "merge", by="m2", runs=["r2"])

    for step in (first, second):
        await change(it.bus, SCOPE, step)


async def _person(it: Rig, cell: ChangeCell, home: Path, crash_at: str | None) -> Program:
    program = await Program.start(
        "memory_change",
        *filter(None, (cell.what, SCOPE, IDS[cell.what])),
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "NATS_URL": it.server.url,
            "SANDSTREAM_HOME": str(home),
            "SANDSTREAM_PREFIX": it.bus.subjects.prefix,
        },
        stderr=home / f"{'first' if crash_at else 'second'}.log",
        crash_at=crash_at,
    )
    said = await program.line()
    await program.wait(60)
    await program.kill()
    if said != ("" if crash_at else "done"):
        raise AssertionError(f"it said {said!r}: {program.errors()}")
    return program


async def _cell(
    cell: ChangeCell, server: NatsServer, directory: Path, model: ScriptedModel
) -> list[str]:
    home = directory / cell.prefix
    await asyncio.to_thread(home.mkdir)
    found: list[str] = []
    async with rig(server, home, model, prefix=cell.prefix) as it:
        await remember(it)
        first = await _person(it, cell, home, cell.point)
        if first.crashed_ns() is None:
            return [f"the crash point was not reached: {first.errors()}"]
        if cell.then == "again":
            await _person(it, cell, home, None)
        else:
            scene = MemoryScene(it, home, model)
            actor = await scene.actor()
            await it.bus.memories.send(  # any request will do
                it.bus.subjects.memory_extract(SCOPE),
                ExtractRequested(rollout="keep", runs=1),
                msg_id="any",
            )
            await it.caught_up()
            await actor.kill()
        found += await _problems(it, cell)
    return found


async def _problems(it: Rig, cell: ChangeCell) -> list[str]:
    async def is_finished() -> bool:
        return (await it.state()).unfinished is None

    await eventually(is_finished, what="somebody has finished it")
    found: list[str] = []
    state = await it.state()
    stored = (await it.bus.memories.stored()).get(SCOPE, set())
    if cell.what == "scope":
        if stored or await it.bus.memories.scopes():
            found.append(f"{len(stored)} objects are left, and {state}")
    else:
        named = await it.referenced()
        base = state.merging.base if state.merging is not None else ""
        if base:
            tree = await it.bus.memories.get_tree(SCOPE, base)
            named |= {base, *(ref.digest for ref in tree.values())}
        if stored != named:
            found.append(f"{len(stored - named)} objects too many, {len(named - stored)} missing")
        if (told := (await it.kinds()).count("undo" if cell.what == "undo" else "remove")) != 1:
            found.append(f"it was told {told} times")
    if cell.what == "undo":
        if [r.kind for r in state.history] != ["merge", "merge", "undo"]:
            found.append(f"the history is {[r.kind for r in state.history]}")
        return found
    for digest in stored:
        if SECRET in await it.bus.memories.objects(SCOPE).get(digest):
            found.append("the secret is still in the store")
    cancelled = await it.bus.log.last(it.bus.subjects.cancel("m3"))
    if cancelled is None or not isinstance(cancelled.event, CancelRequested):
        found.append("the consolidation of what was removed was not stopped")
    subject = it.bus.subjects.memory_merge(SCOPE)
    asked = await stale_many(it.bus.connection, it.bus.topology.log, subject, after=0)
    reasons = [msgspec.json.decode(each.data)["reason"] for each in asked]
    if reasons != (["removed"] if cell.what != "scope" else []):
        found.append(f"asked for a merge: {reasons}")
    return found


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_change_cell(cell: ChangeCell, problems: dict[str, list[str]]) -> None:
    assert problems[cell.name] == []
