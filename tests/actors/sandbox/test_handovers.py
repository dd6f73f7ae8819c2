"""A sandbox belongs to its last user: the end of the run that made it does not close it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from actors.sandbox.yard import NODE, Yard, yard
from sandstream_actors.sandbox.actor import installation_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.reaper import Reaper
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sandboxes import SandboxSpec
from sandstream_bus.wire.subjects import RunId
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer
from support.runs import done, started


class Story:
    def __init__(self, bus: Bus, lifecycle: Lifecycle, provider: LocalProvider) -> None:
        self.bus = bus
        self.lifecycle = lifecycle
        self.reaper = Reaper(bus, lifecycle, provider, every_s=3600)

    @classmethod
    async def of(cls, it: Yard) -> tuple[Story, LocalProvider]:
        bus, provider = await it.bus(), LocalProvider(it.home)
        owner = await installation_of(bus)
        lifecycle = Lifecycle(bus, provider, WorkspaceStore(bus), node=NODE, owner=owner)
        return cls(bus, lifecycle, provider), provider

    async def begin(self, run: str) -> int:
        subject = self.bus.subjects.start(RunId(run), "main")
        first = msgspec.structs.replace(started(), pool="main")
        return await self.bus.log.append(RunId(run), subject, first, after=0, msg_id=f"{run}:0")

    async def end(self, run: str, last: int) -> None:
        subject = self.bus.subjects.done(RunId(run))
        await self.bus.log.append(RunId(run), subject, done(), after=last, msg_id=f"{run}:1")

    async def state(self) -> tuple[str, str]:
        record = await self.lifecycle.record("one")
        return record.state, record.spec.run


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("user", ["r2", ""], ids=["run", "session"])
def test_the_sandbox_of_an_ended_run_is_used_again(
    nats_server: NatsServer, tmp_path: Path, user: str, keeps: bool
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            story, provider = await Story.of(it)
            lifecycle = story.lifecycle
            last = await story.begin("r1")
            spec = SandboxSpec(run="r1", keep_paused=keeps)
            await lifecycle.open("one", spec, run="r1")
            await lifecycle.close("one", checkpoint=True, delete=False)
            await story.end("r1", last)
            if user:
                last = await story.begin(user)
            later = msgspec.structs.replace(spec, run=user) if user else None
            opened = await lifecycle.open("one", later, run=user)
            assert opened.generation == (1 if keeps else 2)
            await story.reaper.sweep()
            assert await story.state() == ("ready", user)
            if user:
                await story.end(user, last)
                await story.reaper.sweep()
                assert await story.state() == ("paused" if keeps else "stopped", user)
            await lifecycle.close("one", checkpoint=False, delete=True)
            await lifecycle.stop()
            await provider.close()

    asyncio.run(story())


def test_a_run_that_only_borrows_a_sandbox_does_not_own_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            story, provider = await Story.of(it)
            await story.lifecycle.open("one", SandboxSpec(), run="")
            before = (await story.lifecycle.record("one")).last_seq
            await story.lifecycle.open("one", None)
            record = await story.lifecycle.record("one")
            assert (record.spec.run, record.last_seq) == ("", before)
            await story.lifecycle.close("one", checkpoint=False, delete=True)
            await story.lifecycle.stop()
            await provider.close()

    asyncio.run(story())
