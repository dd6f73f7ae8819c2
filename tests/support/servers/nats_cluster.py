"""Three real nats-servers on loopback that form one JetStream cluster.

Each node can be killed, stopped (SIGSTOP), continued and restarted on its ports and store. The
cluster also reports the leader of a stream or consumer, and whether all copies of a stream are
current. Streams are created in one place: :meth:`NatsCluster.create_streams`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import Retention
from support.nats_server import NatsServer
from support.waiting import eventually

READY_S = 60.0
RETENTION = Retention(replicas=3)


def free_ports(count: int) -> list[int]:
    """Distinct free ports on loopback."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class NatsCluster:
    """The nodes by name: ``n1``, ``n2``, ``n3``. The starter of the cluster must end it."""

    def __init__(self, directory: Path, *, size: int = 3) -> None:
        ports = free_ports(size)
        routes = json.dumps([f"nats://127.0.0.1:{port}" for port in ports])
        self.nodes: dict[str, NatsServer] = {}
        for number, port in enumerate(ports, 1):
            name = f"n{number}"
            config = (
                f"server_name: {name}\n"
                f'cluster {{ name: test, listen: "127.0.0.1:{port}", routes: {routes} }}'
            )
            self.nodes[name] = NatsServer(directory / name, config=config)
        self.stopped: set[str] = set()

    @property
    def url(self) -> str:
        """All nodes, in the form of ``NATS_URL``."""
        return ",".join(node.url for node in self.nodes.values())

    def options(self) -> ConnectOptions:
        return ConnectOptions(servers=[node.url for node in self.nodes.values()])

    # --- processes -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes. They elect a leader afterwards: see :meth:`create_streams`."""
        try:
            for node in self.nodes.values():
                node.start()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """kill -9 of all nodes, including stopped ones."""
        for node in self.nodes.values():
            node.kill()

    def kill(self, name: str) -> None:
        self.stopped.discard(name)
        self.nodes[name].kill()

    def restart(self, name: str) -> None:
        """Restart a dead node on its ports and store."""
        self.nodes[name].start()

    def suspend(self, name: str) -> None:
        self.nodes[name].suspend()
        self.stopped.add(name)

    def resume(self, name: str) -> None:
        self.nodes[name].resume()
        self.stopped.discard(name)

    def heal(self) -> None:
        """Continue all stopped nodes and restart all dead ones."""
        for name, node in self.nodes.items():
            if name in self.stopped:
                self.resume(name)
            if not node.is_running:
                self.restart(name)

    # --- streams -------------------------------------------------------------------------------

    async def create_streams(self, prefix: str) -> None:
        """Create the streams of one installation, with three copies each.

        Returns when every stream has a leader and all its copies are current.
        """

        async def created() -> bool:
            try:
                bus = await Bus.open(
                    self.options(), prefix=prefix, create="missing", retention=RETENTION
                )
            except BusError:
                return False  # no leader of the cluster yet, or not three nodes
            try:
                await self.until_current(bus.connection, streams_of(bus))
            finally:
                await bus.close()
            return True

        await eventually(created, within_s=READY_S, what="the cluster has streams")

    async def delete_streams(self, bus: Bus) -> None:
        for stream in streams_of(bus):
            await self._ask(bus.connection, f"STREAM.DELETE.{stream}")

    async def stream_leader(self, connection: Connection, stream: str) -> str:
        """The name of the node that leads a stream."""
        return await self._leader(connection, f"STREAM.INFO.{stream}")

    async def consumer_leader(self, connection: Connection, stream: str, consumer: str) -> str:
        return await self._leader(connection, f"CONSUMER.INFO.{stream}.{consumer}")

    async def _leader(self, connection: Connection, call: str) -> str:
        async def look() -> str:
            info = await self._ask(connection, call)
            return str((info.get("cluster") or {}).get("leader") or "")

        return await eventually(look, within_s=READY_S, what=f"{call} names a leader")

    async def step_down(self, connection: Connection, stream: str, consumer: str = "") -> None:
        """Ask the leader of a stream, or of one of its consumers, to step down."""
        what = f"CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}" if consumer else ""
        await self._ask(connection, what or f"STREAM.LEADER.STEPDOWN.{stream}")

    async def until_current(self, connection: Connection, streams: Sequence[str]) -> None:
        """Wait until all copies of these streams have caught up with their leaders."""

        async def are_current() -> bool:
            for stream in streams:
                info = (await self._ask(connection, f"STREAM.INFO.{stream}")).get("cluster") or {}
                copies = info.get("replicas") or []
                if not info.get("leader") or len(copies) < len(self.nodes) - 1:
                    return False
                if not all(it["current"] and not it.get("lag") for it in copies):
                    return False
            return True

        await eventually(are_current, within_s=READY_S, what="all copies are current")

    async def _ask(self, connection: Connection, call: str) -> dict[str, Any]:
        """The answer of the JetStream API; empty if there is none now."""
        with contextlib.suppress(TimeoutError, BusError):
            reply = await connection.request(f"$JS.API.{call}", b"", timeout_s=2.0)
            answer: dict[str, Any] = msgspec.json.decode(reply.data)
            return answer
        await asyncio.sleep(0.2)
        return {}


def streams_of(bus: Bus) -> list[str]:
    return [str(config["name"]) for config in bus.topology.streams()]
