"""An installation as the last release of format 1 left it, and its state on the server."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import msgspec
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored, stale_many
from support.nats_server import NatsServer

_STORE = Path(__file__).parents[2] / "golden" / "format-1" / "store.tar.xz"
LOG = "SANDSTREAM_LOG"
COPY = "SANDSTREAM_LOG-COPY"


def old_log(prefix: str = "sandstream", **changes: Any) -> dict[str, Any]:
    """The configuration of a log of format 1."""
    kinds = ("task.*", "run.>", "sandbox.>", "session.>", "timer.>", "trace.>")
    memory = [f"memory.*.{it}" for it in ("extract", "merge", "edit", "event")]
    config: dict[str, Any] = {
        "name": f"{prefix.upper()}_LOG",
        "subjects": [f"{prefix}.{it}" for it in (*kinds, *memory)],
        "storage": "file",
        "num_replicas": 1,
        "allow_direct": True,
        "discard": "old",
        "max_consumers": 10_000,
        "duplicate_window": 600 * 10**9,
        "allow_msg_ttl": True,
        "allow_msg_schedules": True,
        "compression": "s2",
        "republish": {"src": f"{prefix}.run.>", "dest": f"{prefix}.live.>"},
        "metadata": {"sandstream.topology": "1"},
    }
    return config | changes


def unpack_store(directory: Path) -> None:
    """Put the store where a server with this directory expects it."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(_STORE) as archive:
        archive.extractall(directory, filter="data")


async def api(connection: Connection, call: str, body: Any = None) -> dict[str, Any]:
    """Call the JetStream API directly, without our code."""
    payload = b"" if body is None else msgspec.json.encode(body)
    reply = await connection.request(f"$JS.API.{call}", payload)
    answer: dict[str, Any] = msgspec.json.decode(reply.data)
    return answer


async def messages_of(connection: Connection, stream: str) -> list[Stored]:
    """All messages of a stream: sequences, times, subjects, headers and bodies.

    The conditions under which a message was stored are removed, because a mirror does not keep
    them.
    """
    return [
        it._replace(
            headers={
                key: value
                for key, value in it.headers.items()
                if key not in _OF_READING and not key.startswith("Nats-Expected-")
            }
        )
        for it in await stale_many(connection, stream, ">", after=0)
    ]


_OF_READING = ("Nats-Stream", "Nats-Num-Pending", "Nats-Last-Sequence")


async def streams(connection: Connection) -> dict[str, dict[str, Any]]:
    listed = (await api(connection, "STREAM.LIST")).get("streams") or []
    return {it["config"]["name"]: it for it in listed}


async def places(connection: Connection, stream: str) -> dict[str, tuple[int, int]]:
    """The position of each consumer, and how many messages wait for it."""
    listed = (await api(connection, f"CONSUMER.LIST.{stream}")).get("consumers") or []
    return {it["name"]: (it["ack_floor"]["stream_seq"], it["num_pending"]) for it in listed}


async def remove_lock(server: NatsServer) -> None:
    """Simulate that a minute has passed: the lock of a killed set-up is stale."""
    connection = await Connection.open(server.options())
    await api(connection, "STREAM.DELETE.SANDSTREAM_SETUP")
    await connection.close()
