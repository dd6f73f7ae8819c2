"""An actor of your own: it reads the log and posts each finished run to a webhook.

    python examples/05_webhook_actor.py

Start several processes, and they share the work. After a restart, it continues where it stopped.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request

from offline import model_or_script
from webhook_receiver import Receiver

from sandstream import Actor, Agent, Client, Runner
from sandstream.events import Received, RunDone
from sandstream.testing import text

webhook = Actor("webhook")


def post(url: str, done: RunDone, received: Received) -> None:
    body = {"run": received.run, "status": done.status, "output": json.loads(bytes(done.output))}
    key = (
        f"{received.run}-{received.sequence}"  # an event may be delivered twice: tell the receiver
    )
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=10).close()


async def main(url: str) -> None:
    @webhook.on(RunDone)
    async def tell(done: RunDone, received: Received) -> None:
        # After an exception here, the event is delivered again with growing pauses, then parked.
        await asyncio.to_thread(post, url, done, received)

    async with await Client.connect() as client:
        await webhook.start(client.bus)
        poet = Agent(name="Poet", instructions="Write a haiku.")
        result = await Runner.run(poet, "About sand, please.")
        while (posted := await asyncio.to_thread(RECEIVER.next))["run"] != result.run_id:
            print("an earlier run, while the actor was away:", posted)
        print("the receiver got:", posted)
        await webhook.stop()


if __name__ == "__main__":
    with model_or_script(text("Wind moves the dune on")), Receiver() as RECEIVER:
        asyncio.run(main(RECEIVER.url))
