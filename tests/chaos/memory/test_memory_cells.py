"""kill -9 of the memory actor at every crash point: afterwards every rollout was extracted once, by
one model call, there was one consolidation, and the handbook is complete.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from actors.memory.rig import rig, use
from chaos.memory.cells import MemoryCell, memory_cells
from chaos.memory.scene import EDITED, MemoryScene, drinker
from sandstream_bus.wire.specs import RunOptions
from support.nats_server import NatsServer

from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(180)

ALL = memory_cells()


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """All cells in parallel: most of the time is spent waiting for redeliveries."""
    directory = tmp_path_factory.mktemp("cells")
    server = NatsServer(directory / "nats")

    async def main() -> dict[str, list[str]]:
        async with ScriptedModel(conversations=drinker(), strict=False) as model:
            found = await asyncio.gather(*(_cell(it, server, directory, model) for it in ALL))
        return dict(zip((it.name for it in ALL), found, strict=True))

    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_API_KEY", "test")
            return asyncio.run(main())
    finally:
        server.kill()


async def _cell(
    cell: MemoryCell, server: NatsServer, directory: Path, model: ScriptedModel
) -> list[str]:
    home = directory / cell.prefix
    runs = [f"{cell.prefix}-{name}" for name in ("one", "two")]
    async with rig(server, home, model, prefix=cell.prefix) as it:
        scene = MemoryScene(it, home, model)
        await it.harness()
        await it.sandboxes()
        async with scene.dying_at(f"{cell.point}:{cell.count}") as armed:
            for run in runs:
                mood = "fails once" if cell.model_fails and run == runs[0] else "tea"
                await it.ended(
                    f"I drink: {mood} |{run}|",
                    run=run,
                    rollout=run,
                    use=use(batch_size=2),
                    options=RunOptions(group_id="g"),  # requests of both tries are the same
                )
            await scene.settled(runs)
            found = await scene.problems(runs, failures=int(cell.model_fails))
            text = await it.text("memories/MEMORY.md")
            base = (await it.state()).revision
            await it.edit("memories/MEMORY.md", f"{text}\n{EDITED}\n", base=base)
            await it.until(lambda s: s.history[-1].kind == "edit", "it is edited")
            await it.caught_up()
        kinds = [r.kind for r in (await it.state()).history]
        if kinds != ["merge", "edit"]:
            found.append(f"the history is {kinds}")
        if EDITED not in await it.text("memories/MEMORY.md"):
            found.append("the edit is lost")
        if (told := (await it.kinds()).count("edit")) != 1:
            found.append(f"{told} edits were told")
        if armed.crashed_ns() is None:
            found.append("the crash point was not reached")
        return found


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_memory_cell(cell: MemoryCell, problems: dict[str, list[str]]) -> None:
    assert problems[cell.name] == []
