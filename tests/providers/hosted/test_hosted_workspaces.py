"""Sandboxes of the actor at a vendor: files that a vendor lost, clocks that are wrong, orphans."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from providers.hosted.accounts import Account, new_op
from sandstream_actors.sandbox.actor import installation_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.reaper import Reaper
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sandboxes import PlanFile, SandboxSpec, WorkspacePlan
from sandstream_providers.interface import ExecSpec
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer

FILES = 20


class Desk:
    """What the actor does with the sandbox ``one``."""

    def __init__(self, account: Account, lifecycle: Lifecycle, reaper: Reaper) -> None:
        self.account = account
        self.lifecycle = lifecycle
        self.reaper = reaper

    async def open(self) -> None:
        plan = WorkspacePlan(files=[PlanFile(path="given", data=b"given\n")])
        spec = SandboxSpec(provider=self.account.name, plan=plan, network="host")
        await self.lifecycle.open("one", spec)

    async def said(self, script: str) -> str:
        live = await self.lifecycle.live("one")
        spec = ExecSpec(argv=["sh", "-c", script], cwd=live.box.root)
        return (await live.box.run(new_op(), spec)).stdout.decode()


@contextlib.asynccontextmanager
async def desk(account: Account, server: NatsServer) -> AsyncIterator[Desk]:
    async with contextlib.AsyncExitStack() as stack:
        provider = await stack.enter_async_context(account.provider())
        bus = await Bus.open(server.options(), create="missing")
        stack.push_async_callback(bus.close)
        owner = await installation_of(bus)
        lifecycle = Lifecycle(
            bus, provider, WorkspaceStore(bus), node="shared", owner=owner, owns_boxes=False
        )
        await lifecycle.start()
        stack.push_async_callback(lifecycle.stop)
        yield Desk(account, lifecycle, Reaper(bus, lifecycle, provider, every_s=3600, grace_s=600))


def play(account: Account, server: NatsServer, story: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        async with desk(account, server) as it:
            await story(it)

    try:
        asyncio.run(main())
    finally:
        account.reset()


def test_a_pause_that_lost_files(account: Account, nats_server: NatsServer) -> None:
    """The workspace is restored in a new box from the checkpoint, and the old box is removed."""

    async def story(it: Desk) -> None:
        await it.open()
        await it.said(f"for i in $(seq {FILES}); do echo $i > f$i; done")
        before = account.only_box().id
        await it.lifecycle.pause("one")
        account.server.lose_files(before, share=0.5)
        assert await it.said("cat given; ls | wc -l") == f"given\n{FILES + 1}\n"
        live = await it.lifecycle.live("one")
        assert live.record.generation == 2 and "missing" in live.notice
        await it.lifecycle.stop()
        assert account.only_box().id == live.record.box_id != before

    play(account, nats_server, story)


def test_a_box_that_was_deleted_while_it_slept(account: Account, nats_server: NatsServer) -> None:
    async def story(it: Desk) -> None:
        await it.open()
        assert await it.said("echo new > new; cat new") == "new\n"
        await it.lifecycle.pause("one")
        account.server.delete(account.only_box().id)
        assert await it.said("cat given new") == "given\nnew\n"
        assert len(account.boxes()) == 1

    play(account, nats_server, story)


@pytest.mark.parametrize("ahead_s", [-86_400.0, 86_400.0], ids=["behind", "ahead"])
def test_the_reaper_at_a_vendor_whose_clock_is_wrong(
    account: Account, nats_server: NatsServer, ahead_s: float
) -> None:
    """The box in use stays, and so does one of another installation."""

    async def story(it: Desk) -> None:
        account.server.configure(clock_ahead_s=ahead_s)
        foreign = account.make_foreign("foreign", {"sandstream.owner": "other"})
        await it.open()
        assert await it.reaper.sweep() == []
        assert await it.said("cat given") == "given\n"
        await it.lifecycle.pause("one")
        assert await it.reaper.sweep() == []
        assert await it.said("cat given") == "given\n"
        await it.lifecycle.close("one", checkpoint=False, delete=True)
        await it.lifecycle.stop()
        assert [box.id for box in account.boxes()] == [foreign]

    play(account, nats_server, story)


def test_the_reaper_and_odd_boxes(account: Account, nats_server: NatsServer) -> None:
    """Boxes with labels that make no sense do not keep it from its work."""

    async def story(it: Desk) -> None:
        owner = it.lifecycle.owner
        account.server.configure(clock_ahead_s=-86_400.0)
        for number, sandbox in enumerate(("", "a b > *", "x" * 300)):
            labels = {"sandstream.owner": owner, "sandstream.key": f"odd-{number}"}
            account.make_foreign(f"odd-{number}", {**labels, "sandstream.sandbox": sandbox})
        account.make_foreign("no-key", {"sandstream.owner": owner})
        await it.open()
        await it.reaper.sweep()
        assert await it.said("cat given") == "given\n"

    play(account, nats_server, story)
