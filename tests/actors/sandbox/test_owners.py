"""The reaper keeps the box of whoever lives, and lets go of the box of whoever is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from actors.sandbox.yard import yard
from sandstream_actors.sandbox.actor import installation_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.reaper import Reaper
from sandstream_bus.bus import Bus
from sandstream_bus.wire.memory_specs import MemoryPart
from sandstream_bus.wire.messages import RunOptions, RunStarted, RunWaiting
from sandstream_bus.wire.sandboxes import SandboxIntended, SandboxSpec
from sandstream_bus.wire.subjects import RunId
from sandstream_providers.interface import ExecSpec
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer
from support.runs import done, started

OLD, NEW = "own-here_old", "own-here_new"
POOL = "p-old"


class Story:
    """A program that made a sandbox, and another one of the same machine that looks around."""

    def __init__(self, bus: Bus, home: Path, owner: str) -> None:
        self.bus = bus
        self.providers = [LocalProvider(home), LocalProvider(home)]
        store = WorkspaceStore(bus)
        self.old, self.new = (
            Lifecycle(bus, provider, store, node=node, owner=owner)
            for provider, node in zip(self.providers, (OLD, NEW), strict=True)
        )
        self.reaper = Reaper(bus, self.new, self.providers[1], every_s=3600)

    async def end_old(self) -> None:
        """As a program does that ends; one that is killed has its box end by itself."""
        await self.providers[0].stop_idle()
        await self.providers[0].close()

    async def state(self) -> str:
        return (await self.new.record("one")).state

    async def run(self, *events: Any, **fields: Any) -> None:
        """Write the log of the sandbox's run."""
        spec = started()
        agent = msgspec.structs.replace(spec.graph.agents["a"], host=POOL)
        graph = msgspec.structs.replace(spec.graph, agents={"a": agent})
        first = msgspec.structs.replace(spec, graph=graph, pool=POOL, **fields)
        run, last = RunId("r1"), 0
        for number, event in enumerate([first, *events]):
            subject = (
                self.bus.subjects.start(run, POOL)
                if isinstance(event, RunStarted)
                else self.bus.subjects.done(run)
            )
            last = await self.bus.log.append(run, subject, event, after=last, msg_id=f"r1:{number}")


def play(server: NatsServer, home: Path, plot: Callable[[Story], Awaitable[None]]) -> None:
    async def main() -> None:
        async with yard(server, home) as it:
            bus = await it.bus()
            story = Story(bus, home, await installation_of(bus))
            await plot(story)
            await asyncio.gather(story.old.stop(), story.new.stop())
            await asyncio.gather(*(provider.close() for provider in story.providers))

    asyncio.run(main())


def test_the_session_of_a_program_that_is_gone_is_saved_and_closed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(story: Story) -> None:
        await story.old.open("one", SandboxSpec())
        live = await story.old.live("one")
        write = ExecSpec(argv=["sh", "-c", "echo kept > file"], cwd=live.box.root)
        assert (await live.box.run("write", write)).exit_code == 0
        await story.reaper.sweep()
        assert await story.state() == "ready", "its box has not ended yet"
        await story.end_old()
        await story.reaper.sweep()
        assert await story.state() == "stopped"
        again = await story.new.live("one")
        read = ExecSpec(argv=["cat", "file"], cwd=again.box.root)
        assert (await again.box.run("read", read)).stdout == b"kept\n"
        await story.new.close("one", checkpoint=False, delete=True)

    play(nats_server, tmp_path / "home", plot)


@pytest.mark.parametrize("is_live", [True, False])
def test_a_box_that_was_being_made(nats_server: NatsServer, tmp_path: Path, is_live: bool) -> None:
    """Its maker was killed after the box was there and before the log said that it is ready."""

    async def plot(story: Story) -> None:
        presence = await story.bus.presence.announce(f"sandbox-local-{OLD}") if is_live else None
        await story.old.open("one", SandboxSpec(run="r1"))
        record = await story.old.record("one")
        (intended,) = [
            it.event
            for it in await story.bus.sandboxes.read("one")
            if isinstance(it.event, SandboxIntended)
        ]
        await story.bus.sandboxes.append("one", intended, after=record.last_seq)
        await story.reaper.sweep()
        assert await story.state() == ("intended" if is_live else "stopped")
        if presence is not None:
            await presence.close()
        await story.old.close("one", checkpoint=False, delete=True)

    play(nats_server, tmp_path / "home", plot)


Case = Literal["ended", "abandoned", "keyed", "waiting", "memory phase"]


@pytest.mark.parametrize(
    ("case", "is_kept"),
    [
        ("ended", False),
        ("abandoned", False),
        ("memory phase", False),
        ("keyed", True),
        ("waiting", True),
    ],
)
def test_a_box_of_a_run(nats_server: NatsServer, tmp_path: Path, case: Case, is_kept: bool) -> None:
    async def plot(story: Story) -> None:
        match case:
            case "ended":
                await story.run(done())
            case "keyed":
                await story.run(key="mine")
            case "waiting":
                await story.run(RunWaiting(turn=1, approvals=[]))
            case "memory phase":
                part = MemoryPart(scope="s", step="merge", id="1")
                await story.run(options=RunOptions(memory=part))
            case "abandoned":
                await story.run()
        await story.old.open("one", SandboxSpec(run="r1"))
        await story.end_old()
        await story.reaper.sweep()
        assert await story.state() == ("ready" if is_kept else "stopped")
        ended = await story.bus.log.last(story.bus.subjects.done(RunId("r1")))
        if case == "memory phase":
            assert ended is None, "whoever makes memories begins it again"
        elif case == "abandoned":
            assert ended is not None
        await story.new.close("one", checkpoint=False, delete=True)

    play(nats_server, tmp_path / "home", plot)


@pytest.mark.parametrize("run", ["", "r1"])
def test_a_paused_box_of_a_program_that_is_gone_ends(
    nats_server: NatsServer, tmp_path: Path, run: str
) -> None:
    """It stands still, so it cannot end by itself. The run has a key, and may come back."""

    async def plot(story: Story) -> None:
        await story.run(key="mine")
        await story.old.open("one", SandboxSpec(run=run))
        await story.old.pause("one")
        await story.providers[0].close()  # as if it were killed
        await story.reaper.sweep()
        assert await story.state() == ("paused" if run else "stopped")
        await story.new._removals.finish()
        owned = await story.providers[1].list_owned(story.new.owner)
        assert [it.state for it in owned] == (["stopped"] if run else [])
        await story.new.close("one", checkpoint=False, delete=True)

    play(nats_server, tmp_path / "home", plot)


def test_an_actor_holds_the_boxes_of_its_node(nats_server: NatsServer, tmp_path: Path) -> None:
    """Those that its predecessor made too: they are not to end by themselves."""

    async def plot(story: Story) -> None:
        story.new.node = OLD
        await story.old.open("one", SandboxSpec())
        key = (await story.old.record("one")).key
        presence = await story.bus.presence.announce(f"sandbox-local-{OLD}")
        await story.reaper.sweep()
        assert story.providers[1].host.leases.held() == [key]
        await presence.close()
        await story.old.close("one", checkpoint=False, delete=True)

    play(nats_server, tmp_path / "home", plot)


def test_a_box_whose_log_nobody_can_read_is_left_alone(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def plot(story: Story) -> None:
        await story.old.open("one", SandboxSpec())
        where = story.bus.subjects.sandbox_state("one")
        await story.bus.connection.publish(where, b'{"type":"cancel.requested"}', msg_id="forged")
        assert await story.reaper.sweep() == []
        said = [it for it in caplog.records if "cannot be checked" in it.message]
        assert len(said) == 1 and said[0].exc_info is None
        await story.end_old()

    play(nats_server, tmp_path / "home", plot)
