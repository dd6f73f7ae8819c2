"""A workspace without room for its memory: it is opened, works, and is closed without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from actors.sandbox.memory_yard import ALL, HANDBOOK, SCOPE, SUMMARY, place, remember
from sandstream_bus.wire.sandbox_specs import LimitSpec
from sandstream_bus.wire.sandboxes import MemoryMount, SandboxSpec
from support.nats_server import NatsServer

MOUNT = MemoryMount(scope=SCOPE)
MB = 1024 * 1024


def sessions(count: int, size: int) -> dict[str, str]:
    return {f"sessions/r{number}.jsonl": "x" * size for number in range(count)}


@pytest.mark.parametrize(
    ("disk_mb", "files"), [(2, sessions(3, MB)), (10, sessions(12, MB))], ids=["one", "several"]
)
def test_a_full_disk_costs_the_memory_and_nothing_else(
    nats_server: NatsServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    disk_mb: int,
    files: dict[str, str],
) -> None:
    """Nothing of it is left there to take the room of others, also if there were several parts."""

    async def story() -> None:
        async with place(nats_server, tmp_path / "home") as it:
            await remember(it.bus, ALL | files)
            spec = SandboxSpec(limits=LimitSpec(disk_mb=disk_mb))
            await it.open("one", MOUNT, spec)
            await it.shell("one", 'test -z "$(find . -type f)" && echo works > of-the-run')
            assert not (await it.lifecycle.sync_memory("one", SCOPE)).synced
            # as soon as there is room it is there
            await remember(it.bus, dict.fromkeys(files))
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            await it.shell("one", f"grep -q short {SUMMARY} && grep -q works of-the-run")
            # later it fills up: what is there stays whole, and what was changed is told
            await it.shell("one", f"echo mine >> {HANDBOOK}; head -c 99M /dev/zero > full || true")
            await remember(it.bus, {HANDBOOK: "a\nb\nc\n" + "new\n" * 10_000})
            assert not (await it.lifecycle.sync_memory("one", SCOPE)).synced
            await it.shell("one", f"grep -q mine {HANDBOOK}; grep -q short {SUMMARY}; rm full")
            assert (await it.lifecycle.sync_memory("one", SCOPE)).synced
            await it.shell("one", f"grep -q mine {HANDBOOK}; grep -q new {HANDBOOK}")
            await it.close("one")
            assert len(await it.told()) == 1

    asyncio.run(story())
    assert "its files were not written" in caplog.text
    assert "No space left on device" in caplog.text
