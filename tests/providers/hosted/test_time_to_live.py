"""Vendors end boxes after a time. A box that works is kept, and one that is idle is not."""

from __future__ import annotations

import asyncio

import pytest
from providers.hosted.accounts import Account, Arrivals, in_loop, perform, run, said, until
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.interface import Box

WAIT = "until [ -e go ]; do sleep 0.05; done; echo done"


def _often(account: Account, provider: AgentProvider) -> None:
    """The local Daytona has short minutes, and the adapter does not know it."""
    if account.name == "daytona":
        provider.host.vendor.keep_s = 0.4  # type: ignore[attr-defined]


async def _worked(box: Box, seen: Arrivals, keeps: int) -> None:
    """Run a command for as long as it takes to keep the box so often."""
    running = asyncio.create_task(run(box, WAIT))
    await until(lambda: seen.count("keep") >= keeps)
    await said(box, "touch go")
    assert (await running).stdout == b"done\n"


@pytest.mark.parametrize("agents", [True, False], ids=["agent", "shell"])
def test_a_box_that_works_is_kept(account: Account, agents: bool) -> None:
    async def story(account: Account) -> None:
        async with account.provider(agents=agents) as provider:
            _often(account, provider)
            box = await provider.create(account.short_lived())
            seen = account.arrivals()
            await _worked(box, seen, 4)
            assert seen.count("wake") == 0 and len(account.awake()) == 1

    perform(account, story)


@in_loop
async def test_an_idle_box_is_not_kept(account: Account) -> None:
    async with account.provider() as provider:
        _often(account, provider)
        box = await provider.create(account.short_lived())
        assert await said(box, "echo kept > file") == ""
        seen = account.arrivals()
        await until(lambda: account.awake() == [])
        assert seen.count("keep") == 0
        found = await provider.get(box.key)
        assert found is not None and await said(found, "cat file") == "kept\n"


@pytest.mark.parametrize("kind", ["lost", "drop"])
def test_a_keep_that_fails_is_followed_by_another(account: Account, kind: str) -> None:
    async def story(account: Account) -> None:
        async with account.provider(call_s=4.0) as provider:
            _often(account, provider)
            box = await provider.create(account.short_lived())
            seen = account.arrivals()
            account.fault("keep", kind)
            await _worked(box, seen, 3)
            assert [call.fault for call in seen.calls() if call.fault] == [kind]
            assert len(account.boxes()) == 1

    perform(account, story)


@in_loop
async def test_a_box_with_a_shorter_life_than_the_others(account: Account) -> None:
    """It is kept in its own rhythm, although the next turn of the first box is far away."""
    async with account.provider() as provider:
        await provider.create(account.spec())
        _often(account, provider)
        box = await provider.create(account.short_lived())
        seen = account.arrivals()
        await _worked(box, seen, 3)
        assert seen.count("wake") == 0 and len(account.awake()) == 2
