"""A caller with its own trace: ``python traced_caller.py <agent> <key> <input>``. Prints the id of
the trace and that of the span that the run belongs to.
"""

from __future__ import annotations

import asyncio
import sys

from sandstream import custom_span, trace
from sandstream.client import Client
from sandstream.tracing.trace_parent import trace_parent


async def main(agent: str, key: str, text: str) -> None:
    async with await Client.connect() as client:
        with trace("Order", group_id="orders"), custom_span("hand it in"):
            await client.submit(agent, text, key=key)
            parent = trace_parent()
            assert parent is not None
        print(parent.trace_id, parent.span_id, flush=True)


asyncio.run(main(*sys.argv[1:]))
