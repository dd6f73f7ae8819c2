"""A vendor that takes a call and never answers: the wait is bounded, and the error has a type."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from providers.hosted.accounts import CALL_S, SHORT, Account, in_loop, perform, said, works
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.hosted.errors import VendorSilent
from sandstream_providers.interface import BoxSpec

Act = Callable[[AgentProvider, BoxSpec], Awaitable[object]]

LATER: dict[str, Act] = {
    "look": lambda provider, spec: provider.get(spec.key),
    "wake": lambda provider, spec: provider.get(spec.key),
    "pause": lambda provider, spec: provider.pause(spec.key),
    "stop": lambda provider, spec: provider.stop(spec.key),
    "delete": lambda provider, spec: provider.delete(spec.key),
    "list": lambda provider, spec: provider.list_owned(spec.labels["owner"]),
    "keep": lambda provider, spec: _host(provider).keep_alive(spec.key),
    "terminal": lambda provider, spec: _host(provider).get(spec.key),
    "address": lambda provider, spec: _host(provider).address(spec.key, 8000),
}
"""By the call that it needs. E2B has none for an address."""


def _host(provider: AgentProvider) -> Any:
    return provider.host


def _impatient(account: Account) -> dict[str, Any]:
    return {"options": {"create_timeout": CALL_S}} if account.name == "daytona" else {}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_order(account: Account, after: bool) -> None:
    """Before and after the box was made. When the vendor is back, there is one box."""

    async def story(account: Account) -> None:
        async with account.provider(deadlines=SHORT, call_s=CALL_S) as provider:
            spec = account.spec(**_impatient(account))
            account.fault("create", "hang", times=None, after=after)
            account.fault("list", "hang", times=None)
            account.fault("look", "hang", times=None)
            with pytest.raises(VendorSilent) as caught:
                await provider.create(spec)
            assert caught.value.retryable
        account.server.clear_faults()
        async with account.provider() as provider:
            await provider.create(account.spec(spec.key, may_exist=True, **_impatient(account)))
            await works(provider, spec.key)
            assert len(account.boxes()) == 1

    perform(account, story)


@in_loop
async def test_calls_about_boxes(account: Account) -> None:
    """A box for each kind of call, and all calls at once: each wait takes its time."""
    specs = {operation: account.spec() for operation in LATER if operation in account.routes}
    made: dict[str, str] = {}
    async with account.provider() as maker:
        for operation, spec in specs.items():
            box: Any = await maker.create(spec)
            made[operation] = box.vendor_id
        await maker.pause(specs["wake"].key)
    async with account.provider(deadlines=SHORT, call_s=CALL_S) as provider:
        for operation, spec in specs.items():
            provider.recall(spec, made[operation])
            box_id = None if operation == "list" else made[operation]
            account.fault(operation, "hang", times=None, box=box_id)
        seen = account.arrivals()
        acts = [LATER[operation](provider, spec) for operation, spec in specs.items()]
        errors = await asyncio.gather(*acts, return_exceptions=True)
        for operation, error in zip(specs, errors, strict=True):
            assert isinstance(error, VendorSilent) and error.retryable, (operation, error)
        hanging = {(call.name, call.box) for call in seen.calls() if call.fault == "hang"}
        assert len(hanging) == len(specs)
    account.server.clear_faults()
    async with account.provider() as provider:
        for operation, spec in specs.items():
            provider.recall(spec, made[operation])
            await works(provider, spec.key)
        assert {box.id for box in account.boxes()} == set(made.values())


@in_loop
async def test_a_command_of_the_vendor(account: Account) -> None:
    async with account.provider() as maker, account.provider(call_s=CALL_S) as provider:
        box = await _host(maker).vendor.create(account.spec())
        account.fault("exec", "hang", times=None)
        with pytest.raises(VendorSilent):
            await _host(provider).vendor.execute(box.id, "echo never", timeout_s=CALL_S)


@in_loop
async def test_a_box_that_starts_slowly(account: Account) -> None:
    """It is ordered once, however often it is asked for."""
    slow = {"daytona": "start_delay_s", "e2b": "create_seconds"}[account.name]
    account.server.configure(**{slow: 1.0})
    async with account.provider() as provider:
        spec = account.spec(**_impatient(account))
        account.fault("create", "lost")
        await provider.create(spec)
        await works(provider, spec.key)
        assert len(account.boxes()) == 1


@pytest.mark.parametrize("account", ["daytona"], indirect=True)
def test_a_box_that_never_starts(account: Account) -> None:
    """Only this vendor answers before a box runs."""

    async def story(account: Account) -> None:
        account.server.configure(start_delay_s=60.0)
        async with account.provider(deadlines=SHORT) as provider:
            with pytest.raises(VendorSilent, match="not started within 3 s"):
                await provider.create(account.spec(**_impatient(account)))

    perform(account, story)


@in_loop
async def test_an_agent_that_falls_silent(account: Account) -> None:
    """Nothing ends the connection, but nothing comes over it any more: another one is made."""
    async with account.provider(deadlines=SHORT) as provider:
        box = await provider.create(account.spec())
        frozen = (
            "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q '[a]gent-.* background'"
        )
        assert await said(box, f"({frozen} && kill -STOP ${{p#/proc/}}; done) || true") == ""
        assert await said(box, "echo fine | tee -a effects") == "fine\n"
        assert await said(box, "cat effects") == "fine\n"
