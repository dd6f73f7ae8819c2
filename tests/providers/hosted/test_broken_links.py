"""The connection to a box breaks, or its box ends, in the middle of a command and between two."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from providers.hosted.accounts import Account, in_loop, new_op, perform, run, said, until, works
from sandstream_providers.interface import BoxGone

LINES = 60_000
LONG = f"echo begun >> effects; seq {LINES}; echo ended >> effects"


@pytest.mark.parametrize("messages", [2, 4, 8, 16])
def test_a_terminal_that_is_cut(account: Account, messages: int) -> None:
    """In the handshake and in a command, which runs once and loses nothing of its output."""

    async def story(account: Account) -> None:
        async with account.provider() as provider:
            account.fault("terminal", "cut", messages=messages, times=2)
            box = await provider.create(account.spec())
            done = await run(box, LONG)
            assert done.stdout.split() == [b"%d" % number for number in range(1, LINES + 1)]
            assert await said(box, "cat effects") == "begun\nended\n"
            assert len(account.boxes()) == 1

    perform(account, story)


@pytest.mark.parametrize("account", ["e2b"], indirect=True)
def test_an_exec_that_is_cut(account: Account) -> None:
    """At E2B the answer of a command without an agent is a stream, too."""

    async def story(account: Account) -> None:
        async with account.provider(agents=False) as provider:
            box = await provider.create(account.spec())
            account.fault("exec", "cut", messages=1)
            done = await run(box, "echo once | tee -a effects")
            assert done.stdout == b"once\n"
            assert await said(box, "cat effects") == "once\n"

    perform(account, story)


@in_loop
async def test_a_box_that_expires_while_it_is_idle(account: Account) -> None:
    """The vendor has paused or stopped it; it is woken with its files."""
    async with account.provider() as provider:
        spec = account.spec()
        box = await provider.create(spec)
        assert await said(box, "echo kept > file") == ""
        made = account.only_box().id
        account.server.expire(made)
        assert account.awake() == []
        with contextlib.suppress(BoxGone):  # a call to a box may wake it
            await run(box, "true")
        found = await provider.get(spec.key)
        assert found is not None and await said(found, "cat file") == "kept\n"
        assert account.only_box().id == made


@in_loop
async def test_a_box_that_is_deleted_while_it_is_idle(account: Account) -> None:
    async with account.provider() as provider:
        spec = account.spec()
        box = await provider.create(spec)
        account.server.delete(account.only_box().id)
        with pytest.raises(BoxGone):
            await run(box, "true")
        assert await provider.get(spec.key) is None
        await provider.delete(spec.key)
        with pytest.raises(BoxGone):
            await provider.pause(spec.key)
        with pytest.raises(BoxGone):
            await provider.resume(spec.key)
        assert await provider.list_owned(account.owner) == []


@pytest.mark.parametrize("agents", [True, False], ids=["agent", "shell"])
def test_a_box_that_is_deleted_during_a_command(account: Account, agents: bool) -> None:
    async def story(account: Account) -> None:
        async with account.provider(agents=agents) as provider:
            spec = account.spec()
            box = await provider.create(spec)
            seen = account.arrivals()
            running = asyncio.create_task(run(box, "echo begun; sleep 30"))
            if agents:
                await begun(provider.host, spec.key)
            else:
                await until(lambda: seen.count("exec"))
            account.server.delete(account.only_box().id)
            with pytest.raises(BoxGone):
                await running
            assert await provider.get(spec.key) is None

    perform(account, story)


async def begun(host: object, key: str) -> None:
    """A command runs in the box."""
    vendor = host.vendor  # type: ignore[attr-defined]
    box_id = host._known[key].box_id  # type: ignore[attr-defined]
    while "sleep" not in await vendor.execute(box_id, "ps -A -o comm", timeout_s=10):
        await asyncio.sleep(0.05)


@in_loop
async def test_a_box_that_expires_during_a_command(account: Account) -> None:
    """The command goes on where its vendor keeps the memory. Where it does not, its caller learns
    that the outcome is unknown. It never runs a second time.
    """
    async with account.provider() as provider:
        spec = account.spec()
        box = await provider.create(spec)
        op = new_op()
        script = "echo begun >> effects; until [ -e go ]; do sleep 0.05; done; echo done"
        running = asyncio.create_task(run(box, script, op=op))
        while await said(box, "cat effects 2>/dev/null || true") != "begun\n":
            await asyncio.sleep(0.05)
        account.server.expire(account.only_box().id)
        found = await provider.get(spec.key)
        assert found is not None
        await said(found, "touch go")
        try:
            done = await running  # a call to a paused box may have woken it before
        except BoxGone:
            done = await run(found, script, op=op)
        assert await said(found, "cat effects") == "begun\n"
        if account.name == "e2b":
            assert (done.state, done.stdout) == ("exited", b"done\n")
        else:
            assert done.state == "lost"
        await works(provider, spec.key)
