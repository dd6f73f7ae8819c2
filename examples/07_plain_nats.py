"""Any NATS client in any language can use deployed agents. This one is nats-py alone.

    NATS_URL=nats://127.0.0.1:4222 python examples/07_plain_nats.py "Where is order 17?"

It needs the agents of 06_worker_app.py on that server, for example from `docker compose up`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from typing import Any

import nats

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


async def main(question: str) -> None:
    try:
        async with asyncio.timeout(5):  # nats-py itself tries for two minutes
            client = await nats.connect(URL, error_cb=say)
    except TimeoutError:
        sys.exit(f"there is no NATS server at {URL}: start one with the agents of 06_worker_app.py")
    # The message id names the run. Publishing again with the same id means the same run.
    run = f"plain-{uuid.uuid4().hex[:12]}"
    live = await client.subscribe(f"sandstream.live.{run}.>")

    await client.jetstream().publish(
        "sandstream.task.support",
        json.dumps({"input": question, "stream": True}).encode(),
        headers={"Nats-Msg-Id": run},
    )
    done = await wait_for_done(live, run)
    print(f"{done['status']}: {done.get('output') or done['error']['message']}")
    await client.close()


async def say(error: Exception) -> None:
    print(error, file=sys.stderr)


async def wait_for_done(live: Any, run: str) -> Any:
    """Print every event of the run as it is stored; the last one is `done`."""
    async with asyncio.timeout(60):
        async for message in live.messages:
            kind = message.subject.removeprefix(f"sandstream.live.{run}.")
            event = json.loads(message.data)
            if kind == "done":
                return event
            if kind != "delta":  # deltas are the model's tokens
                print(f"{kind:22} {event['type']}", file=sys.stderr)
    raise RuntimeError("the connection was closed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "Where is order 17?"))
