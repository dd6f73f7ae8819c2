"""For the tests of the E2B adapter: the adapter at a local E2B, and what arrived there."""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import AsyncIterator
from typing import Any

from sandstream_providers.e2b.account import account_of
from sandstream_providers.e2b.vendor import E2BVendor
from sandstream_providers.interface import BoxSpec
from vendors.journal import Call
from vendors.process import VendorServer

OWNER = "the installation"


def new_spec(key: str = "", *, owner: str = OWNER, **rest: Any) -> BoxSpec:
    """With a key that was never used, a network and no options, unless said otherwise."""
    key = key or f"ss-{uuid.uuid4()}"
    labels = {"owner": owner, "sandbox": f"sandbox of {key}", "generation": "1", "run": "run-1"}
    return BoxSpec(key=key, labels=labels, **{"network": "host", **rest})


@contextlib.asynccontextmanager
async def adapter(server: VendorServer, **settings: Any) -> AsyncIterator[E2BVendor]:
    """Another process, as far as the vendor can tell: it knows nothing of any box."""
    made = E2BVendor(account_of(environment=server.env), **settings)
    try:
        yield made
    finally:
        await made.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Arrivals:
    """The calls that arrive at the vendor from now on."""

    def __init__(self, server: VendorServer) -> None:
        self._server = server
        self._seen = len(server.journal())

    def calls(self) -> list[Call]:
        """Those since the last time."""
        new = self._server.journal(self._seen)
        self._seen += len(new)
        return new

    def names(self) -> list[str]:
        return [call.name for call in self.calls()]
