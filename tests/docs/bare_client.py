"""A client of Sandstream that has nothing of Sandstream: nats-py and JSON, as any language would.

    python bare_client.py URL ACTION …    prints what it got, as JSON

Publishes tasks, follows and reads back as docs/wire.md says. Ends with an error if any of our
packages got imported.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import nats
from nats.aio.client import Client

LOG = "SANDSTREAM_LOG"
PATIENCE_S = 30.0


async def submit(
    connection: Client, agent: str, body: str, key: str | None = None, **_: Any
) -> dict[str, Any]:
    """Publish a task, wait for the stream's acknowledgement, follow the run to its end."""
    everything = await connection.subscribe("sandstream.live.>")
    headers = {"Nats-Msg-Id": key} if key else None
    reply = await connection.request(
        f"sandstream.task.{agent}", body.encode(), timeout=5, headers=headers
    )
    ack = json.loads(reply.data)
    run = key or f"task-{ack['seq']}"
    events: list[dict[str, Any]] = []
    if not ack.get("duplicate"):
        while not (events and events[-1]["subject"].endswith(f".{run}.done")):
            message = await everything.next_msg(timeout=PATIENCE_S)
            if message.subject.startswith(f"sandstream.live.{run}."):
                events.append({"subject": message.subject, "body": json.loads(message.data)})
    return {"run": run, "duplicate": ack.get("duplicate", False), "events": events}


async def read(connection: Client, run: str, **_: Any) -> dict[str, Any]:
    """The whole run in one request; an empty message ends it."""
    inbox = connection.new_inbox()
    replies = await connection.subscribe(inbox)
    query = {"seq": 1, "next_by_subj": f"sandstream.run.{run}.>", "batch": 500}
    await connection.publish(f"$JS.API.DIRECT.GET.{LOG}", json.dumps(query).encode(), reply=inbox)
    events: list[dict[str, Any]] = []
    while True:
        message = await replies.next_msg(timeout=PATIENCE_S)
        if not message.data:
            return {"run": run, "events": events}
        subject = (message.headers or {})["Nats-Subject"]
        events.append({"subject": subject, "body": json.loads(message.data)})


async def cancel(connection: Client, agent: str, body: str, key: str, **_: Any) -> dict[str, Any]:
    """Start a run, cancel it as soon as it has begun, wait for its end."""
    started = await connection.subscribe(f"sandstream.live.{key}.start.*")
    ended = await connection.subscribe(f"sandstream.live.{key}.done")
    await connection.publish(
        f"sandstream.task.{agent}", body.encode(), headers={"Nats-Msg-Id": key}
    )
    await started.next_msg(timeout=PATIENCE_S)
    await connection.publish(f"sandstream.run.{key}.cancel", b'{"type":"cancel.requested"}')
    end = await ended.next_msg(timeout=PATIENCE_S)
    return {"run": key, "done": json.loads(end.data)}


async def main(url: str, action: str, arguments: dict[str, Any]) -> None:
    connection = await nats.connect(url)
    actions = {"submit": submit, "read": read, "cancel": cancel}
    result = await actions[action](connection, **arguments)
    await connection.close()
    ours = [name for name in sys.modules if name.startswith("sandstream")]
    assert not ours, f"this client is not bare: {ours}"
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
