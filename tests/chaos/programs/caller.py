"""A caller on the bus: ``python caller.py submit|cancel|approve|expire <key> [<input>]``. Prints
``ready`` when it is done, or was done before.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from sandstream_actors.harness.expiry import end_expiring

from sandstream.approvals import AlreadyDecided
from sandstream.client import Client


async def main(verb: str, key: str, text: str = "") -> None:
    async with await Client.connect() as client:
        if verb == "submit":
            await client.submit("clerk", text, key=key, context={"key": key})
        elif verb == "approve":
            with contextlib.suppress(AlreadyDecided):  # by the one that was killed
                await client.approve(key, by="caller")
        elif verb == "expire":  # what a harness does to a run that is too old for the log
            await end_expiring(client.bus, max_age_s=0.001)
        else:
            await client.cancel(key, reason="asked for")
    print("ready", flush=True)


asyncio.run(main(*sys.argv[1:]))
