"""A caller on the bus: ``python caller.py submit|cancel <key> [<input>]``. Says ``ready`` when
done.
"""

from __future__ import annotations

import asyncio
import sys

from sandstream.client import Client


async def main(verb: str, key: str, text: str = "") -> None:
    async with await Client.connect() as client:
        if verb == "submit":
            await client.submit("clerk", text, key=key, context={"key": key})
        else:
            await client.cancel(key, reason="asked for")
    print("ready", flush=True)


asyncio.run(main(*sys.argv[1:]))
