"""The sessions actor inside a program: started on the first use, and only where there is none."""

from __future__ import annotations

import asyncio

from sandstream_bus.bus import Bus
from sandstream_bus.wire.sessions import CreateSession, SendMessage, SessionState
from support.nats_server import NatsServer, open_bus
from support.waiting import eventually

from sandstream._run.sessions_host import EmbeddedSessions


def test_one_program_serves_and_the_next_continues(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as one, open_bus(nats_server) as other:
            first, second = EmbeddedSessions(one), EmbeddedSessions(other, look_every_s=0.05)
            await first.ensure()
            await first.ensure()
            await second.ensure()
            assert await one.presence.is_served("sessions")
            sequence = await one.sessions.request("a", CreateSession(agent="unknown"))
            state = await _settled(one, sequence)
            assert state.refused[0].error.code == "session.unknown_agent"
            await first.stop()
            sequence = await other.sessions.request("a", SendMessage(input="x"))
            assert (await _settled(other, sequence)).refused[-1].request == sequence
            await second.stop()

    asyncio.run(main())


async def _settled(bus: Bus, sequence: int) -> SessionState:
    async def look() -> SessionState | None:
        state = (await bus.sessions.read("a")).state
        return state if state is not None and state.through >= sequence else None

    return await eventually(look)
