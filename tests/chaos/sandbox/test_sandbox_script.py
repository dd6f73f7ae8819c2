"""A script with a sandbox, everything in one process, killed during its work and restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from chaos.evidence import requests_of
from chaos.sandbox.fleet import END, remove_boxes
from chaos.sandbox.work import FINAL, LENGTHY, Command, scripted_smith
from chaos.script_home import ScriptHome
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.actor import installation_of
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import RunId, sandbox_of
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.waiting import eventually, until

from sandstream.client import Client
from sandstream.testing import ScriptedModel

PROGRAM = "smith_script"


def test_a_script_is_killed_during_a_command(tmp_path: Path) -> None:
    """The command continues without the script; the second start collects its output."""

    async def run(model: ScriptedModel) -> None:
        home = ScriptHome(tmp_path / "script", model.base_url)
        try:
            first = await home.script("again", LENGTHY.order("again"), name=PROGRAM)
            boxes = home.home / "sandboxes"
            await until(lambda: list(boxes.glob("*/workspace/begun-2")), within_s=30, what="begun")
            await first.kill()
            second = await home.script("again", LENGTHY.order("again"), name=PROGRAM)
            assert await second.line(40) == FINAL, second.errors()
            assert await second.wait(10) == 0, second.errors()
            async with await home.client() as client:
                await _check(client, home.home)
        finally:
            await home.close()
            await remove_boxes(home.home)
        last = max((it.text for it in requests_of(model.journal, "again")), key=len)
        for number in (1, 2, 3):
            assert last.count(Command.says(number)) == 1

    with scripted_smith() as model:
        asyncio.run(run(model))


async def _check(client: Client, home: Path) -> None:
    """Each command ran once, the run ended once, no box is left."""
    bus = client.bus
    events = [it.event for it in await bus.log.read(RunId("again"))]
    assert [it.status for it in events if isinstance(it, RunDone)] == ["completed"]
    sandbox = sandbox_of("again", END)
    record = SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))
    assert (record.state, record.generation) == ("stopped", 1)
    parts = [part async for part in WorkspaceStore(bus).read_file(record.tree, "counter")]
    assert b"".join(parts).decode() == LENGTHY.counter
    provider = LocalProvider(home)
    owner = await installation_of(bus)

    async def none_left() -> bool:
        return not await provider.list_owned(owner)

    await eventually(none_left, what="no boxes are left")
    await provider.close()
