"""A copy of a memory while it is replaced: every file is whole at any time, and the marker never
names a revision that the other files do not have yet.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest
from actors.sandbox.memory_yard import (
    HANDBOOK,
    MARKER,
    SCOPE,
    SUMMARY,
    Place,
    files_in,
    marker_in,
    place,
    remember,
)
from sandstream_bus.wire.sandboxes import MemoryMount
from support.nats_server import NatsServer

MOUNT = MemoryMount(scope=SCOPE)
LINES = 500
NOTES = [f"memories/notes/n{each:03}.md" for each in range(150)]
RAW = [f"memories/raw_memories/r{each:03}.md" for each in range(50)]


def version(number: int) -> dict[str, str]:
    """Many files, so that there is something to be interrupted."""
    return dict.fromkeys([HANDBOOK, SUMMARY, *NOTES, *RAW], f"version {number}\n" * LINES)


def number_of(text: str) -> int:
    """Of which version it is. It must be all of it."""
    lines = text.splitlines()
    assert len(lines) == LINES and len({*lines}) == 1, "half a file"
    return int(lines[0].split()[1])


def _kill_when_replaced(path: Path, pids: list[int]) -> bool:
    """As soon as there is another file at this path: did that happen?"""
    before = path.stat().st_ino
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if path.stat().st_ino != before:
                break
        except FileNotFoundError:
            continue
    else:
        return False
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return True


async def _pids(it: Place, sandbox: str) -> list[int]:
    facts = json.loads((it.yard.box(await it.lifecycle.record(sandbox)) / "box.json").read_text())
    return [facts[which]["pid"] for which in ("outer", "inner")]


@pytest.mark.parametrize("path", [MARKER, HANDBOOK, SUMMARY, NOTES[0], NOTES[-1], RAW[0], RAW[-1]])
def test_a_box_that_is_killed_meanwhile_has_whole_files_and_is_put_right(
    nats_server: NatsServer, tmp_path: Path, path: str
) -> None:
    """A marker that came before its files would make a change of what is only old; that would be
    told, and undo the memory's own.
    """

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            old = await remember(it.bus, version(1))
            workspace = await it.open("one", MOUNT)
            await remember(it.bus, version(2))
            pids = await _pids(it, "one")
            watching = asyncio.create_task(
                asyncio.to_thread(_kill_when_replaced, workspace / path, pids)
            )
            await it.lifecycle.sync_memory("one", SCOPE)
            assert await watching
            found = {each: number_of(text) for each, text in files_in(workspace).items()}
            assert found.keys() == version(1).keys()
            marker = marker_in(workspace)
            assert marker is not None
            if marker.revision != old.revision:
                assert {*found.values()} == {2}, "the marker came too early"
            it.lifecycle.forget("one")
            workspace = await it.open("one", MOUNT)
            assert files_in(workspace) == version(2)
            assert await it.told() == []

    asyncio.run(story())
