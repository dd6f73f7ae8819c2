"""A client of Sandstream that has nothing of Sandstream: nats-py and JSON, as any language would.

    python bare_client.py URL ACTION …    prints what it got, as JSON

Publishes tasks, follows and reads back as docs/wire.md says. Ends with an error if any of our
packages got imported.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

LOG = "SANDSTREAM_LOG"
PATIENCE_S = 30.0


async def submit(
    connection: Client, agent: str, body: str, key: str | None = None, user: str = "", **_: Any
) -> dict[str, Any]:
    """Publish a task, wait for the stream's acknowledgement, follow the run to its end."""
    everything = await connection.subscribe("sandstream.live.>")
    subject = f"sandstream.ask.{user}.task.{agent}" if user else f"sandstream.task.{agent}"
    headers = {"Sandstream-Key" if user else "Nats-Msg-Id": key} if key else None
    reply = await connection.request(subject, body.encode(), timeout=5, headers=headers)
    ack = json.loads(reply.data)
    run = (f"{user}=" if user else "") + (key or f"task-{ack['seq']}")
    events: list[dict[str, Any]] = []
    if not ack.get("duplicate"):
        while not (events and events[-1]["subject"].endswith(f".{run}.done")):
            message = await everything.next_msg(timeout=PATIENCE_S)
            if message.subject.startswith(f"sandstream.live.{run}.") and is_genuine(message):
                events.append({"subject": message.subject, "body": json.loads(message.data)})
    return {"run": run, "duplicate": ack.get("duplicate", False), "events": events}


def is_genuine(message: Msg) -> bool:
    """Has the log sent it, or is it a delta? Others can have a server send something there, too."""
    headers = message.headers or {}
    if message.subject.endswith(".delta"):
        return not any(name.startswith("Nats-") for name in headers)
    subject = message.subject.replace("sandstream.live.", "sandstream.run.", 1)
    return headers.get("Nats-Stream") == LOG and headers.get("Nats-Subject") == subject


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


async def cancel(
    connection: Client, agent: str, body: str, key: str, user: str = "shared", **_: Any
) -> dict[str, Any]:
    """Start a run, cancel it as soon as it has begun, wait for its end."""
    run = key if user == "shared" else f"{user}={key}"
    task = "sandstream.task" if user == "shared" else f"sandstream.ask.{user}.task"
    started = await connection.subscribe(f"sandstream.live.{run}.start.*")
    ended = await connection.subscribe(f"sandstream.live.{run}.done")
    await connection.publish(f"{task}.{agent}", body.encode(), headers={"Sandstream-Key": key})
    await started.next_msg(timeout=PATIENCE_S)
    await connection.publish(f"sandstream.ask.{user}.run.{run}.cancel", b"{}")
    end = await ended.next_msg(timeout=PATIENCE_S)
    return {"run": run, "done": json.loads(end.data)}


async def main(url: str, action: str, arguments: dict[str, Any]) -> None:
    connection = await nats.connect(url)
    actions: dict[str, Callable[..., Awaitable[Any]]] = {
        "submit": submit,
        "read": read,
        "cancel": cancel,
    }
    result = await actions[action](connection, **arguments)
    await connection.close()
    ours = [name for name in sys.modules if name.startswith("sandstream")]
    assert not ours, f"this client is not bare: {ours}"
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
