"""What somebody could try: all subjects, all calls of the JetStream API, all headers and reply
subjects that the server gives a meaning to.
"""

from __future__ import annotations

import re

from sandstream_bus.wire import subjects

_PARTS = {
    "p": "sandstream",
    "agent": "clerk",
    "run": "victim",
    "pool": "main",
    "provider": "local",
    "node": "node1",
    "call": "t1-0",
    "sandbox": "box",
    "op": "op1",
    "session": "talk",
    "scope": "shop",
    "owner": "victim",
    "name": "retry",
    "subject": "run.victim.turn.main",
    "trace": "a" * 32,
    "group": "main",
    "consumer": "harness-main",
    "sequence": "7",
    "kind": "done",
    "number": "1",
}


def grammar(user: str) -> list[str]:
    """A subject of every row of the grammar."""
    rows = re.findall(r"^    (<p>\.\S+)", subjects.__doc__ or "", re.MULTILINE)
    assert len(rows) > 40
    parts = _PARTS | {"user": user}
    return [re.sub(r"<(\w+)>", lambda it: parts[it[1]], row).rstrip("…") for row in rows]


STREAMS = (
    *(
        f"SANDSTREAM_{it}"
        for it in ["LOG", "REQUESTS", "TIMERS", "OPEN", "AGENTS", "PARKED", "MEMORY"]
    ),
    "OBJ_sandstream-objects",
    "OBJ_sandstream-memory",
)


def api_calls() -> list[str]:
    """Every call of the server's JetStream API."""
    found = ["INFO", "STREAM.NAMES", "STREAM.LIST", "SERVER.REMOVE", "META.LEADER.STEPDOWN"]
    found += ["ACCOUNT.PURGE.SANDSTREAM", "ACCOUNT.STREAM.MOVE.SANDSTREAM.SANDSTREAM_LOG"]
    found += ["ACCOUNT.STREAM.CANCEL_MOVE.SANDSTREAM.SANDSTREAM_LOG", "STREAM.CREATE.MINE"]
    found += ["STREAM.TEMPLATE.CREATE.t", "STREAM.TEMPLATES"]
    of_stream = (
        "CREATE UPDATE INFO DELETE PURGE MSG.DELETE MSG.GET SNAPSHOT RESTORE LEADER.STEPDOWN"
    )
    of_consumers = "NAMES LIST CREATE"
    of_consumer = "CREATE DURABLE.CREATE INFO DELETE MSG.NEXT LEADER.STEPDOWN PAUSE UNPIN RESET"
    for stream in STREAMS:
        found += [f"STREAM.{it}.{stream}" for it in (*of_stream.split(), "PEER.REMOVE")]
        found += [f"CONSUMER.{it}.{stream}" for it in of_consumers.split()]
        found += [_consumer_call(it, stream) for it in of_consumer.split()]
        found += [f"CONSUMER.CREATE.{stream}.harness-main.>"]
        found += [f"DIRECT.GET.{stream}", f"DIRECT.GET.{stream}.sandstream.agent.clerk"]
    return [f"$JS.API.{it}" for it in found]


def _consumer_call(call: str, stream: str) -> str:
    if call == "DURABLE.CREATE":
        return f"CONSUMER.DURABLE.CREATE.{stream}.harness-main"
    return f"CONSUMER.{call}.{stream}.harness-main"


OTHERS = (
    "$JS.ACK.SANDSTREAM_LOG.harness-main.1.1.1.1.0",
    "$JS.FC.SANDSTREAM_LOG.harness-main.x",
    "$JS.EVENT.ADVISORY.API",
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.ACCOUNT.SANDSTREAM.INFO",
    "$SYS.REQ.SERVER.PING",
    "$O.sandstream-objects.M.abc",
    "$O.sandstream-objects.C.abc",
    "$O.sandstream-memory.M.abc",
    "$KV.x.y",
    "_INBOX.bob.guess.1",
    "_R_.guess.guess",
    "_GR_.x.y",
    "anything",
)

HEADERS: dict[str, dict[str, str]] = {
    "schedule": {
        "Nats-Schedule": "@at 2020-01-01T00:00:00Z",
        "Nats-Schedule-Target": "sandstream.run.victim.done",
    },
    "schedule to another ask": {
        "Nats-Schedule": "@every 1s",
        "Nats-Schedule-Target": "sandstream.ask.bob.run.victim.cancel",
        "Nats-Schedule-TTL": "1h",
        "Nats-Schedule-Source": "sandstream.ask.bob.run.victim.input",
    },
    "rollup of all": {"Nats-Rollup": "all"},
    "rollup of a subject": {"Nats-Rollup": "sub"},
    "ttl": {"Nats-TTL": "1s"},
    "expected stream": {"Nats-Expected-Stream": "SANDSTREAM_LOG"},
    "expected sequence": {"Nats-Expected-Last-Sequence": "999"},
    "expected sequence of a subject": {
        "Nats-Expected-Last-Subject-Sequence": "999",
        "Nats-Expected-Last-Subject-Sequence-Subject": "sandstream.run.victim.>",
    },
    "expected id": {"Nats-Expected-Last-Msg-Id": "seed-1"},
    "id of an actor's message": {"Nats-Msg-Id": "seed-1"},
    "trace": {"Nats-Trace-Dest": "sandstream.run.victim.done"},
    "only trace": {"Nats-Trace-Dest": "sandstream.agent.clerk", "Nats-Trace-Only": "true"},
    "trace to an ask": {"Nats-Trace-Dest": "sandstream.ask.bob.task.clerk"},
    "w3c trace": {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"},
    "batch": {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    "counter": {"Nats-Incr": "+1"},
    "marker": {"Nats-Marker-Reason": "Purge"},
    "copy": {"Nats-Stream": "SANDSTREAM_LOG", "Nats-Sequence": "1", "Nats-Subject": "x"},
    "scheduler": {"Nats-Scheduler": "sandstream.timer.victim.retry", "Nats-Schedule-Next": "purge"},
    "client info": {"Nats-Client-Info": '{"acc":"SANDSTREAM","user":"admin"}'},
    "request info": {"Nats-Request-Info": '{"acc":"SANDSTREAM"}'},
    "api level": {"Nats-Required-Api-Level": "99"},
}
