"""For the tests of the local E2B: the vendor's SDK with boxes that do not outlive their test."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from e2b import AsyncSandbox
from vendors.process import VendorServer

AsyncTest = Callable[[VendorServer], Awaitable[None]]


def connection(vendor: VendorServer, **options: Any) -> dict[str, Any]:
    """Options of every SDK call."""
    return {
        "api_key": vendor.api_key,
        "api_url": vendor.api_url,
        "sandbox_url": vendor.sandbox_url,
        **options,
    }


@contextlib.asynccontextmanager
async def box(vendor: VendorServer, **options: Any) -> AsyncIterator[AsyncSandbox]:
    """A new box, deleted afterwards."""
    sandbox = await AsyncSandbox.create(**{"template": "base", **connection(vendor), **options})
    try:
        yield sandbox
    finally:
        with contextlib.suppress(RuntimeError):
            vendor.delete(sandbox.sandbox_id)


def in_loop(test: AsyncTest) -> Callable[[VendorServer], None]:
    """Run an asynchronous test; without faults afterwards, and with no mistake of the protocol."""

    @functools.wraps(test)
    def run(vendor: VendorServer) -> None:
        before = len(vendor.protocol_errors())
        try:
            asyncio.run(_run(test, vendor))
        finally:
            vendor.clear_faults()
            vendor.set_latency(0.0)
            for left in vendor.boxes():
                vendor.delete(left.id)
        assert vendor.protocol_errors()[before:] == []

    return run


async def _run(test: AsyncTest, vendor: VendorServer) -> None:
    await test(vendor)


async def until(holds: Callable[[], Any]) -> None:
    """Wait for something that will be true soon; the limit of the test is the limit."""
    while not holds():
        await asyncio.sleep(0.02)
