"""One installation's bus: the connection and everything that is built on it, opened and closed as
one.
"""

from __future__ import annotations

from sandstream_bus.codec import Codec
from sandstream_bus.connect_options import ConnectOptions, ServerReviver
from sandstream_bus.connection import Connection
from sandstream_bus.conversations import Conversations
from sandstream_bus.follow import Follower
from sandstream_bus.log import RunLog
from sandstream_bus.memories import Memories
from sandstream_bus.objects import Objects
from sandstream_bus.parking import ParkingLot
from sandstream_bus.presence import Presence
from sandstream_bus.registry import AgentRegistry
from sandstream_bus.sandboxes import Sandboxes
from sandstream_bus.subjects import DEFAULT_PREFIX, Subjects
from sandstream_bus.timers import Timers
from sandstream_bus.topology import Retention, Topology


class Bus:
    """What actors and clients get. Whoever opened it closes it."""

    def __init__(
        self,
        connection: Connection,
        topology: Topology,
        objects: Objects,
        memory_objects: Objects,
    ) -> None:
        subjects = topology.subjects
        self.connection = connection
        self.topology = topology
        self.subjects = subjects
        self.objects = objects
        self.codec = Codec(objects)
        self.log = RunLog(connection, self.codec, subjects, topology.log)
        self.work_log = RunLog(connection, self.codec, subjects, topology.log, budget_s=None)
        """The same log for actors: what they hold must not be lost, so they never give up."""
        self.follow = Follower(connection, self.log, self.codec, subjects)
        self.presence = Presence(connection, subjects)
        self.parking = ParkingLot(connection, subjects, topology, objects)
        self.timers = Timers(connection, self.codec, subjects)
        self.sandboxes = Sandboxes(connection, self.codec, subjects, topology.log, self.presence)
        self.conversations = Conversations(connection, self.codec, topology)
        self.memories = Memories(connection, self.codec, topology, memory_objects)
        self.agents = AgentRegistry(connection, self.codec, subjects, topology)

    @classmethod
    async def open(
        cls,
        options: ConnectOptions,
        *,
        prefix: str = DEFAULT_PREFIX,
        retention: Retention | None = None,
        reviver: ServerReviver | None = None,
    ) -> Bus:
        """Connect and make sure that the streams are there."""
        topology = Topology(Subjects(prefix), retention)
        connection = await Connection.open(options, reviver)
        try:
            await topology.apply(connection)
        except BaseException:
            await connection.close()
            raise

        async def connect() -> Connection:
            return await Connection.open(options, reviver)

        return cls(
            connection,
            topology,
            Objects(topology.bucket, connect),
            Objects(topology.memory_bucket, connect),
        )

    async def close(self) -> None:
        await self.objects.close()
        await self.memories.close()
        await self.connection.close()
