"""For the tests of the adapter for Daytona: an account at the local vendor, and its requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from sandstream_providers.daytona.account import DaytonaAccount
from sandstream_providers.daytona.vendor import DaytonaVendor
from sandstream_providers.hosted.vendor import Terminal, VendorBox
from sandstream_providers.interface import BoxSpec
from vendors.process import VendorServer

AsyncTest = Callable[[VendorServer], Awaitable[None]]
OWNER = "the-tests"
_numbers = itertools.count(1)


def account(server: VendorServer, **changes: str) -> DaytonaAccount:
    given = {"api_key": server.api_key, "api_url": server.api_url, "target": "us"}
    return DaytonaAccount(**{**given, **changes})


@contextlib.asynccontextmanager
async def vendor_at(server: VendorServer, **settings: Any) -> AsyncIterator[DaytonaVendor]:
    """The adapter. It leaves no task behind."""
    before = asyncio.all_tasks()
    vendor = DaytonaVendor(account(server), **settings)
    try:
        yield vendor
    finally:
        await vendor.close()
        assert asyncio.all_tasks() == before


def new_spec(**options: Any) -> BoxSpec:
    number = next(_numbers)
    labels = {"owner": OWNER, "sandbox": f"box-{number}", "generation": "1", "run": "r1"}
    return BoxSpec(key=f"ss-{number:04}", labels=labels, options=options)


async def new_box(vendor: DaytonaVendor, **options: Any) -> VendorBox:
    box = await vendor.create(new_spec(**options))
    assert box.state == "running"
    return box


class Requests:
    """What the vendor saw since this object was made."""

    def __init__(self, server: VendorServer) -> None:
        self._server = server
        self._from = len(server.journal())

    def names(self) -> list[str]:
        return [call.name for call in self._server.journal(self._from)]

    def last(self) -> Any:
        return self._server.journal(self._from)[-1]


@contextlib.contextmanager
def configured(server: VendorServer, **settings: tuple[object, object]) -> Iterator[None]:
    """Settings of the vendor: what they are now, and what they are normally."""
    server.configure(**{name: value for name, (value, _) in settings.items()})
    try:
        yield
    finally:
        server.configure(**{name: normal for name, (_, normal) in settings.items()})


def in_loop(test: AsyncTest) -> Callable[[VendorServer], None]:
    """Run an asynchronous test. Afterwards there is no fault, and no box; and the server has found
    no mistake in our requests.
    """

    @functools.wraps(test)
    def run(server: VendorServer) -> None:
        before = len(server.protocol_errors())
        try:
            asyncio.run(_run(test, server))
        finally:
            server.clear_faults()
            for left in server.boxes():
                with contextlib.suppress(RuntimeError):  # it is on its way
                    server.delete(left.id)
        assert server.protocol_errors()[before:] == []

    return run


async def _run(test: AsyncTest, server: VendorServer) -> None:
    await test(server)


class Talk:
    """A terminal, and what it said that has not been looked at yet."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._said = b""

    async def until(self, wanted: bytes) -> bytes:
        """What it says, up to and with these bytes."""
        while (at := self._said.find(wanted)) < 0:
            data = await self.terminal.receive()
            assert data, self._said
            self._said += data
        end = at + len(wanted)
        heard, self._said = self._said[:end], self._said[end:]
        return heard

    async def rest(self) -> bytes:
        """What it has said or says next."""
        said, self._said = self._said, b""
        return said or await self.terminal.receive()
