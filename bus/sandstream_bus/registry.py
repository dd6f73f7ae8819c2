"""The deployed agents: who offers what. The last registration of a name counts."""

from __future__ import annotations

from sandstream_bus.codec import Codec
from sandstream_bus.connection import Connection
from sandstream_bus.direct import direct_get_last, direct_get_many
from sandstream_bus.messages import AgentRegistered
from sandstream_bus.subjects import Subjects, text_of
from sandstream_bus.topology import Topology


class AgentRegistry:
    """Reads and writes registrations."""

    def __init__(
        self, connection: Connection, codec: Codec, subjects: Subjects, topology: Topology
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._subjects = subjects
        self._stream = topology.agents

    async def register(self, agent: AgentRegistered, *, instance: str) -> None:
        """Offer an agent under the name of its graph's start; ``instance`` tells one worker's start
        from another's.
        """
        subject = self._subjects.agent(agent.graph.start)
        data = await self._codec.encode(agent)
        await self._connection.publish(subject, data, msg_id=f"{subject}:{instance}")

    async def find(self, name: str) -> AgentRegistered | None:
        stored = await direct_get_last(self._connection, self._stream, self._subjects.agent(name))
        return None if stored is None else await self._codec.registration(stored.data)

    async def names(self) -> list[str]:
        prefix = f"{self._subjects.prefix}.agent."
        found = await direct_get_many(self._connection, self._stream, prefix + "*", after=0)
        return sorted(text_of(stored.subject.removeprefix(prefix)) for stored in found)
