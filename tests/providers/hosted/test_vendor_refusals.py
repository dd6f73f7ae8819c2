"""A vendor says no: for good, for now, or because of a fault of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from providers.hosted.accounts import CALL_S, SHORT, Account, in_loop, perform, said, works
from sandstream_providers.hosted.errors import (
    QuotaReached,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.interface import ProviderError

VARIABLES = {"daytona": "DAYTONA_API_KEY", "e2b": "E2B_API_KEY"}


@in_loop
async def test_a_wrong_key(account: Account) -> None:
    async with account.provider(api_key="e2b_" + "0" * 40) as provider:
        seen = account.arrivals()
        for ask in (provider.check(), provider.create(account.spec())):
            with pytest.raises(VendorRefused, match=VARIABLES[account.name]) as caught:
                await ask
            assert (caught.value.code, caught.value.retryable) == ("provider_unavailable", False)
        assert len(seen.calls()) == 2, "no call is repeated"
    assert account.boxes() == []


@in_loop
async def test_a_key_that_expires(account: Account) -> None:
    """A box is not taken for lost because we may not ask for it."""
    async with account.provider() as provider:
        spec = account.spec()
        box = await provider.create(spec)
        account.fault("look", "status", status=401, times=None)
        account.fault("list", "status", status=401, times=None)
        for ask in (provider.get(spec.key), provider.list_owned(account.owner)):
            with pytest.raises(VendorRefused, match=VARIABLES[account.name]):
                await ask
        assert await said(box, "echo on") == "on\n", "the connection that is there still works"
        account.server.clear_faults()
        await works(provider, spec.key)


@in_loop
async def test_an_account_with_all_its_boxes(account: Account) -> None:
    async with account.provider() as provider:
        spec = account.spec()
        if account.name == "daytona":
            account.server.configure(max_boxes=0)
        else:
            account.server.configure(concurrent_sandboxes=0)
        seen = account.arrivals()
        with pytest.raises(QuotaReached) as caught:
            await provider.create(spec)
        assert (caught.value.code, seen.count("create")) == ("quota_reached", 1)
        assert account.boxes() == []
        account.reset()
        await provider.create(spec)
        await works(provider, spec.key)


@pytest.mark.parametrize("after", [{"Retry-After": "0"}, {}], ids=["when", "sometime"])
@pytest.mark.parametrize("operation", ["create", "list", "delete"])
def test_too_many_calls(account: Account, operation: str, after: dict[str, str]) -> None:
    async def story(account: Account) -> None:
        async with account.provider() as provider:
            spec = account.spec()
            account.fault(operation, "status", status=429, headers=after, times=2)
            seen = account.arrivals()
            await provider.create(spec)
            assert len(await provider.list_owned(account.owner)) == 1
            await provider.delete(spec.key)
            assert seen.count(operation) == 3
            assert account.boxes() == []

    perform(account, story)


@in_loop
async def test_a_vendor_that_wants_to_be_left_alone_for_long(account: Account) -> None:
    async with account.provider(deadlines=SHORT) as provider:
        account.fault("create", "status", status=429, headers={"Retry-After": "120"})
        seen = account.arrivals()
        with pytest.raises(VendorBusy) as caught:
            await provider.create(account.spec())
        assert (caught.value.retry_after_s, caught.value.retryable) == (120.0, True)
        assert seen.count("create") == 1 and account.boxes() == []


@pytest.mark.parametrize(
    ("status", "operations"),
    [(500, ("create", "look", "wake", "pause", "delete", "list")), (503, ("create", "pause"))],
)
def test_a_fault_of_the_vendor_is_waited_out(
    account: Account, status: int, operations: tuple[str, ...]
) -> None:
    """Before an effect and after it."""

    async def story(account: Account) -> None:
        async with account.provider() as provider:
            spec = account.spec()
            for operation in operations:
                account.fault(operation, "status", status=status)
                account.fault(operation, "status", status=status, after=True)
            box = await provider.create(spec)
            assert await said(box, "echo kept > file; cat file") == "kept\n"
            await provider.pause(spec.key)
            assert account.awake() == []
            found = await provider.get(spec.key)
            assert found is not None and await said(found, "cat file") == "kept\n"
            (info,) = await provider.list_owned(account.owner)
            assert info.vendor_id == account.only_box().id
            await provider.delete(spec.key)
            assert account.boxes() == []

    perform(account, story)


@pytest.mark.parametrize("operation", ["create", "look", "list", "delete"])
def test_a_fault_that_stays_is_an_error(account: Account, operation: str) -> None:
    async def story(account: Account) -> None:
        async with account.provider(deadlines=SHORT, call_s=10 * CALL_S) as provider:
            spec = account.spec()
            if operation != "create":
                await provider.create(spec)
            account.fault(operation, "status", status=500, times=None)
            asks: dict[str, Callable[[], Awaitable[object]]] = {
                "create": lambda: provider.create(spec),
                "look": lambda: provider.get(spec.key),
                "list": lambda: provider.list_owned(account.owner),
                "delete": lambda: provider.delete(spec.key),
            }
            ask = asks[operation]
            with pytest.raises(ProviderError) as caught:
                await ask()
            assert isinstance(caught.value, VendorBusy | VendorSilent) and caught.value.retryable
            assert len(account.boxes()) == (operation != "create")
            account.server.clear_faults()
            await ask()

    perform(account, story)
