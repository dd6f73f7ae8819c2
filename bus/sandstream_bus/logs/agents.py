"""Registrations of deployed agents. The last registration of a name counts."""

from __future__ import annotations

from sandstream_bus.logs.codec import Codec
from sandstream_bus.nats.connection import PUBLISH_BUDGET_S, Connection
from sandstream_bus.nats.fresh import fresh_last
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.messages import AgentRegistered
from sandstream_bus.wire.subjects import Subjects, text_of


class AgentRegistry:
    """Reads and writes registrations."""

    def __init__(
        self, connection: Connection, codec: Codec, subjects: Subjects, topology: Topology
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._subjects = subjects
        self._topology = topology
        self._stream = topology.agents

    async def register(
        self,
        agent: AgentRegistered,
        *,
        instance: str,
        budget_s: float | None = PUBLISH_BUDGET_S,
    ) -> None:
        """Register an agent under the name of its graph's start; ``instance`` identifies one start
        of a worker.
        """
        subject = self._subjects.agent(agent.graph.start)
        data = await self._codec.encode(agent)
        await self._connection.publish(
            subject, data, msg_id=f"{subject}:{instance}", budget_s=budget_s
        )

    async def find(self, name: str) -> AgentRegistered | None:
        stored = await fresh_last(self._connection, self._stream, self._subjects.agent(name))
        return None if stored is None else await self._codec.registration(stored.data)

    async def names(self) -> list[str]:
        [agents] = self._subjects.matching("agent.*")
        found = await self._topology.subjects_of(self._connection, self._stream, agents)
        return sorted(text_of(self._subjects.split(subject).owner) for subject in found)
