"""One installation's bus: the connection and everything built on it, opened and closed together."""

from __future__ import annotations

from sandstream_bus.logs.agents import AgentRegistry
from sandstream_bus.logs.codec import Codec
from sandstream_bus.logs.conversations import Conversations
from sandstream_bus.logs.follow import Follower
from sandstream_bus.logs.memories import Memories
from sandstream_bus.logs.open_runs import OpenRuns
from sandstream_bus.logs.parked import ParkingLot
from sandstream_bus.logs.presence import Presence
from sandstream_bus.logs.runs import RunLog
from sandstream_bus.logs.sandboxes import Sandboxes
from sandstream_bus.logs.sessions import Sessions
from sandstream_bus.logs.timers import Timers
from sandstream_bus.nats.connect_options import ConnectOptions, ServerReviver
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.log_guard import LogGuard
from sandstream_bus.nats.objects import Objects
from sandstream_bus.nats.topology import Retention, Topology
from sandstream_bus.setup.installation import Create, create_missing, look, verify
from sandstream_bus.setup.upgrade_state import needed
from sandstream_bus.wire.subjects import DEFAULT_PREFIX, Subjects


class Bus:
    """The bus for actors and clients. Its opener closes it.

    Args:
        connection: The connection to the NATS server.
        topology: The streams and buckets of the installation.
        objects: The store of big payloads and workspaces.
        memory_objects: The store of agents' memories.
    """

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
        self.guard = connection.guard = LogGuard(connection, topology.log)
        self.open_runs = OpenRuns(connection, subjects, topology.open)
        self.log = RunLog(connection, self.codec, topology, self.open_runs)
        self.work_log = RunLog(connection, self.codec, topology, self.open_runs, budget_s=None)
        """The same log for actors, which retry without limit, so that no result gets lost."""
        self.follow = Follower(connection, self.log, subjects)
        self.presence = Presence(connection, subjects)
        self.parking = ParkingLot(connection, subjects, topology, objects)
        self.timers = Timers(connection, self.codec, subjects)
        self.sandboxes = Sandboxes(connection, self.codec, topology, self.presence)
        self.conversations = Conversations(connection, self.codec, topology)
        self.sessions = Sessions(connection, self.codec, topology)
        self.memories = Memories(connection, self.codec, topology, memory_objects)
        self.agents = AgentRegistry(connection, self.codec, subjects, topology)

    @classmethod
    async def open(
        cls,
        options: ConnectOptions,
        *,
        prefix: str = DEFAULT_PREFIX,
        create: Create = "never",
        retention: Retention | None = None,
        reviver: ServerReviver | None = None,
        outsider: bool = False,
    ) -> Bus:
        """Connect, and verify that the streams are as this release needs them, as far as this user
        may see them.

        Args:
            options: The server's addresses and our credentials.
            prefix: The first token of all subjects of the installation.
            create: Which missing streams to create. An existing stream is never changed, except
                that "missing" also upgrades an installation of an older format.
            retention: The settings of a new installation's streams. An existing one has its own.
            reviver: Restarts the server when it is gone.
            outsider: Check only the log: the user may not see more.

        Raises:
            NotSetUp: Streams are missing.
            StreamsDiffer: A stream is not as this release needs it.
        """
        topology = Topology(Subjects(prefix), retention)
        connection = await Connection.open(options, reviver)
        try:
            found = await look(connection, topology, may_be_denied=True, only_log=outsider)
            if create == "missing" and await needed(connection, topology, found[topology.log]):
                from sandstream_bus.setup.upgrade import upgrade  # rarely needed

                await upgrade(connection, topology)
                found = await look(connection, topology)
            is_empty = not any(found.values())
            is_unindexed = found[topology.open] is None and found[topology.log] is not None
            if create == "missing" or (create == "if_empty" and is_empty):
                found = await create_missing(connection, topology, found)
            topology.retention = await verify(connection, topology, found)
        except BaseException:
            await connection.close()
            raise

        async def connect() -> Connection:
            return await Connection.open(options, reviver)

        self = cls(
            connection,
            topology,
            Objects(topology.bucket, connect),
            Objects(topology.memory_bucket, connect),
        )
        await self.guard.begin()
        if is_unindexed:
            await self.rebuild_index()
        return self

    async def rebuild_index(self) -> int:
        """Enter all open runs of the log into the index; return their number."""
        # imported here: rarely needed
        from sandstream_bus.logs.open_runs_rebuild import rebuild

        return await rebuild(self.connection, self.topology, self.codec, self.open_runs)

    async def close(self) -> None:
        """Close the connection and the stores. Streams and runs stay."""
        await self.objects.close()
        await self.memories.close()
        await self.connection.close()
