"""One account at a local vendor, for tests of what a hosted provider does on bad days.

Both vendors are the same to a test: it names operations, and the account knows their routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.daytona.account import DaytonaAccount
from sandstream_providers.daytona.vendor import DaytonaVendor
from sandstream_providers.e2b.account import account_of
from sandstream_providers.e2b.vendor import E2BVendor
from sandstream_providers.hosted.calls import Deadlines
from sandstream_providers.hosted.host import HostedHost
from sandstream_providers.hosted.vendor import Vendor
from sandstream_providers.interface import Box, BoxSpec, ExecSpec, Output
from vendors.faults import Fault
from vendors.journal import Call
from vendors.process import VendorServer
from vendors.server import Box as Billed

Story = Callable[["Account"], Awaitable[None]]

ROUTES: dict[str, dict[str, str]] = {
    "daytona": {
        "create": "POST /sandbox",
        "look": "GET /sandbox/{box}",
        "wake": "POST /sandbox/{box}/start",
        "pause": "POST /sandbox/{box}/pause",
        "stop": "POST /sandbox/{box}/stop",
        "delete": "DELETE /sandbox/{box}",
        "list": "GET /sandbox",
        "keep": "POST /sandbox/{box}/last-activity",
        "terminal": "WS /toolbox/process/pty/create-connect",
        "exec": "POST /toolbox/process/execute",
        "address": "GET /sandbox/{box}/ports/{port}/signed-preview-url",
    },
    "e2b": {
        "create": "POST /v2/sandboxes",
        "look": "GET /sandboxes/{box}",
        "wake": "POST /v2/sandboxes/{box}/connect",
        "pause": "POST /sandboxes/{box}/pause",
        "stop": "POST /sandboxes/{box}/pause",
        "delete": "DELETE /sandboxes/{box}",
        "list": "GET /v2/sandboxes",
        "keep": "POST /sandboxes/{box}/timeout",
        "terminal": "POST /process.Process/Start",
        "exec": "POST /process.Process/Start",
    },
}
"""By vendor and operation: the request, as journal and faults name it."""
SETTINGS: dict[str, dict[str, Any]] = {
    "daytona": {"sandbox_class": "linux-vm", "extra_dirs": ["/workspace"]},
    "e2b": {},
}
"""Of a vendor on a good day: its boxes can be paused, and have a place for a workspace."""
NORMAL: dict[str, dict[str, Any]] = {
    "daytona": {
        "start_delay_s": 0.0,
        "stop_delay_s": 0.0,
        "list_lag_s": 0.0,
        "label_filter": True,
        "max_boxes": None,
        "suspended": None,
        "python": True,
        "sudo": True,
        "minute_s": 60.0,
        "clock_ahead_s": 0.0,
        **SETTINGS["daytona"],
    },
    "e2b": {
        "idempotency": True,
        "metadata_filter": True,
        "list_lag_s": 0.0,
        "concurrent_sandboxes": 100,
        "create_seconds": 0.0,
        "sudo": False,
        "clock_ahead_s": 0.0,
    },
}
SHORT = Deadlines(patience_s=1.5, start_s=3.0, greeting_s=5.0, silent_s=2.0)
"""For vendors that never answer."""
CALL_S = 0.4
COMMAND_S = 40.0
_numbers = itertools.count(1)


class Account:
    """The local server of a vendor, and providers that use it with the vendor's SDK."""

    def __init__(self, name: str, server: VendorServer) -> None:
        self.name = name
        self.server = server
        self.owner = f"owner-{os.getpid()}-{next(_numbers)}"
        self.routes = ROUTES[name]

    def vendor(self, *, api_key: str = "", call_s: float | None = None) -> Vendor:
        """``call_s``: no call of the adapter waits longer for an answer."""
        key = api_key or self.server.api_key
        if self.name == "daytona":
            account = DaytonaAccount(api_key=key, api_url=self.server.api_url, target="us")
            if call_s is None:
                return DaytonaVendor(account)
            return DaytonaVendor(account, call_s=call_s, change_s=call_s)
        e2b = account_of(environment={**self.server.env, "E2B_API_KEY": key})
        return E2BVendor(e2b) if call_s is None else E2BVendor(e2b, call_s=call_s, long_s=call_s)

    @contextlib.asynccontextmanager
    async def provider(
        self, *, agents: bool = True, deadlines: Deadlines | None = None, **vendor: Any
    ) -> AsyncIterator[AgentProvider]:
        """As in a process of its own, which knows no box. It leaves no task behind."""
        before = asyncio.all_tasks()
        host = HostedHost(self.vendor(**vendor), agents=agents, deadlines=deadlines)
        made = AgentProvider(host)
        try:
            yield made
        finally:
            await made.close()
            left = asyncio.all_tasks() - before
            if left:  # what was cancelled at the end needs a moment
                await asyncio.wait(left, timeout=5.0)
            assert asyncio.all_tasks() == before

    def spec(self, key: str = "", **fields: Any) -> BoxSpec:
        key = key or f"ss-{os.getpid()}-{next(_numbers)}"
        labels = {"owner": self.owner, "sandbox": key, "generation": "1", "run": "run-1"}
        labels |= fields.pop("labels", {})
        return BoxSpec(key=key, labels=labels, network="host", **fields)

    # --- what the vendor sees and does ------------------------------------------------------------

    def fault(self, operation: str, kind: Any, **more: Any) -> None:
        self.server.add_fault(Fault(self.routes[operation], kind, **more))

    def boxes(self) -> list[Billed]:
        return self.server.boxes()

    def only_box(self) -> Billed:
        (found,) = self.boxes()
        return found

    def awake(self) -> list[str]:
        """The ids of the boxes that run."""
        return [box.id for box in self.boxes() if box.state in ("started", "running")]

    def arrivals(self) -> Arrivals:
        return Arrivals(self)

    def short_lived(self) -> BoxSpec:
        """A box that its vendor ends or stops after six seconds, unless it is kept."""
        if self.name == "daytona":
            self.server.configure(minute_s=6.0)
            return self.spec(options={"auto_stop_interval": 1})
        return self.spec(options={"timeout": 6})

    def make_foreign(self, name: str, labels: dict[str, str]) -> str:
        """A box that another program of the account has made; its id."""
        path, body = "/sandbox", {"name": name, "labels": labels}
        if self.name == "e2b":
            path, body = "/v2/sandboxes", {"templateID": "base", "metadata": labels}
        request = urllib.request.Request(
            f"{self.server.api_url}{path}",
            data=json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.server.api_key}",
                "X-API-Key": self.server.api_key,
                "X-Daytona-Source": "another-program",
                "X-Daytona-SDK-Version": "0",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            made = json.load(answer)
        return str(made.get("id") or made["sandboxID"])

    def reset(self) -> None:
        """No fault, no box, and the settings of a good day."""
        self.server.clear_faults()
        self.server.set_latency(0.0)
        self.server.configure(**NORMAL[self.name])
        for box in self.boxes():
            with contextlib.suppress(RuntimeError):  # it is on its way
                self.server.delete(box.id)


class Arrivals:
    """The calls that reach the vendor from now on."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._since = len(account.server.journal())

    def calls(self) -> list[Call]:
        return self._account.server.journal(self._since)

    def names(self) -> list[str]:
        return [call.name for call in self.calls()]

    def count(self, operation: str, box: str = "") -> int:
        """Calls of this kind; with ``box``, only those about it."""
        route = self._account.routes[operation]
        return sum(call.name == route and box in ("", call.box) for call in self.calls())


def in_loop(story: Story) -> Callable[[Account], None]:
    """Play an asynchronous story at each vendor, which found no mistake in our requests."""

    @functools.wraps(story)
    def play(account: Account) -> None:
        perform(account, story)

    return play


def perform(account: Account, story: Story) -> None:
    """The account is as new afterwards."""
    before = len(account.server.protocol_errors())
    try:
        asyncio.run(_played(story, account))
    finally:
        account.reset()
    assert account.server.protocol_errors()[before:] == []


async def _played(story: Story, account: Account) -> None:
    await story(account)


def new_op() -> str:
    return f"op-{os.getpid()}-{next(_numbers)}"


async def run(box: Box, script: str, *, op: str = "", wait_s: float | None = None) -> Output:
    spec = ExecSpec(argv=["sh", "-c", script], cwd=box.root, timeout_s=COMMAND_S)
    return await box.run(op or new_op(), spec, wait_s=wait_s)


async def said(box: Box, script: str) -> str:
    """What a script wrote; it must succeed."""
    done = await run(box, script)
    assert (done.state, done.exit_code) == ("exited", 0), done
    return done.stdout.decode()


async def until(holds: Callable[[], object], *, within_s: float = 30.0) -> None:
    """Look at the vendor's server now and then until this is true."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.05)


async def works(provider: AgentProvider, key: str) -> None:
    """The box is there, and its next command runs."""
    box = await provider.get(key)
    assert box is not None and await said(box, "echo fine") == "fine\n"


@contextlib.contextmanager
def configured(account: Account, **settings: Any) -> Iterator[None]:
    account.server.configure(**settings)
    try:
        yield
    finally:
        account.server.configure(**{name: NORMAL[account.name][name] for name in settings})
