"""All that an installation has in its streams: to see that nothing has changed."""

from __future__ import annotations

import json
from typing import Any

from nats.aio.client import Client as Nats
from security.attacks import STREAMS

SEEDS = {
    "sandstream.run.victim.start.main": b'{"type":"run.started"}',
    "sandstream.run.victim.model": b"{}",
    "sandstream.agent.clerk": b'{"type":"agent.registered"}',
    "sandstream.open.victim": b"{}",
    "sandstream.memory.shop.state": b"{}",
    "sandstream.parked.harness-main.7": b"{}",
    "sandstream.timer.victim.retry": b"{}",
    "sandstream.session.talk.log": b"{}",
    "sandstream.session.talk.state": b'{"type":"session.state","session":"talk"}',
    "sandstream.session.talk.turn.1": b"{}",
    "sandstream.sandbox.box.state": b"{}",
    "sandstream.task.clerk": b'{"input":"first"}',
    "$O.sandstream-objects.M.abc": b"{}",
    "$O.sandstream-memory.M.abc": b"{}",
}


async def sow(admin: Nats) -> None:
    """Something in each stream."""
    for number, (subject, data) in enumerate(SEEDS.items()):
        headers = {"Nats-Msg-Id": f"seed-{number}"}
        if ".timer." in subject:
            due = "sandstream.due.run.victim.turn.main"
            headers |= {"Nats-Schedule": "@at 2099-01-01T00:00:00Z", "Nats-Schedule-Target": due}
        ack = await admin.request(subject, data, headers=headers, timeout=5)
        assert "seq" in json.loads(ack.data), ack.data
    config = {"durable_name": "harness-main", "name": "harness-main", "ack_policy": "explicit"}
    body = {"stream_name": "SANDSTREAM_LOG", "config": config}
    await api(admin, "CONSUMER.CREATE.SANDSTREAM_LOG.harness-main", body)


async def api(connection: Nats, call: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    reply = await connection.request(f"$JS.API.{call}", data, timeout=5)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


async def contents(admin: Nats) -> dict[str, Any]:
    """Each stream: its configuration, its messages, its consumers and where they are."""
    names = await api(admin, "STREAM.NAMES")
    found: dict[str, Any] = {"streams": sorted(names["streams"])}
    for stream in STREAMS:
        info = await api(admin, f"STREAM.INFO.{stream}")
        state = info["state"]
        messages = []
        for sequence in range(state["first_seq"], state["last_seq"] + 1):
            got = await api(admin, f"STREAM.MSG.GET.{stream}", {"seq": sequence})
            if "message" in got:
                messages.append(got["message"])
        consumers = (await api(admin, f"CONSUMER.LIST.{stream}")).get("consumers") or []
        found[stream] = {
            "created": info["created"],
            "config": info["config"],
            "messages": messages,
            "consumers": [
                (it["name"], it["config"], it["delivered"], it["ack_floor"], it["num_pending"])
                for it in consumers
            ],
        }
    return found
