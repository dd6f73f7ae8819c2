"""Vendors end boxes after a time. A box that works is kept, and one that is idle is not."""

from __future__ import annotations

import asyncio
from typing import Any

from providers.hosted.accounts import Account, in_loop, run, said, until

WAIT = "until [ -e go ]; do sleep 0.05; done; echo done"
FAULTS = ("lost", "drop")


@in_loop
async def test_boxes_with_a_short_life(account: Account) -> None:
    """The idle one ends. Those that work outlive it: with our agent and without, after a lost call
    that was to keep them, and although the next turn of a box with a long life is far away.
    """
    async with account.provider(call_s=4.0) as provider:
        host: Any = provider.host
        await provider.create(account.spec())
        if (
            account.name == "daytona"
        ):  # the local one has short minutes, and the adapter cannot know
            host.vendor.keep_s = 0.4
        idle: Any = await provider.create(account.short_lived())
        assert await said(idle, "echo kept > file") == ""
        seen = account.arrivals()
        working: list[tuple[Any, asyncio.Task[Any]]] = []
        for how in ("agent", "shell", *FAULTS):
            host._agents = how != "shell"
            box: Any = await provider.create(account.short_lived())
            if how in FAULTS:
                account.fault("keep", how, box=box.vendor_id)
            working.append((box, asyncio.create_task(run(box, WAIT))))
        await until(lambda: idle.vendor_id not in account.awake())
        assert seen.count("keep", idle.vendor_id) == 0
        for box, running in working:
            await until(lambda box=box: seen.count("keep", box.vendor_id) >= 3)  # type: ignore[misc]
            await said(box, "touch go")
            assert (await running).stdout == b"done\n"
        assert sorted(call.fault for call in seen.calls() if call.fault) == sorted(FAULTS)
        assert seen.count("wake") == 0 and len(account.awake()) == 1 + len(working)
        found = await provider.get(idle.key)
        assert found is not None and await said(found, "cat file") == "kept\n"
        assert len(account.boxes()) == 2 + len(working)
