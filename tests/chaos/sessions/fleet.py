"""A deployed system with sessions: two replicas of the sessions actor, sandboxes on one node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chaos.processes import Program
from chaos.sandbox.fleet import END, SandboxFleet
from sandstream_bus.wire.sessions import SessionRequest, SessionState
from sandstream_bus.wire.subjects import session_conversation, session_sandbox
from sandstream_workspaces.store import WorkspaceStore
from support.waiting import eventually

SESSIONS = "sessions"
AGENT = END
WITHIN_S = 60.0


class SessionFleet(SandboxFleet):
    """Its people have sessions with the agent whose work is done by commands."""

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.replicas[SESSIONS] = []

    async def replica(self, kind: str, **more: Any) -> Program:
        if kind != SESSIONS:
            return await super().replica(kind, **more)
        program = await self.program("sessions_actor", **more)
        if await program.line() != "ready":
            await program.wait(5)
            if program.crashed_ns() is None:
                raise AssertionError(f"{kind} did not start: {program.errors()}")
        self.replicas[kind] = [one for one in self.replicas[kind] if one.is_running]
        self.replicas[kind].append(program)
        return program

    # --- what people do ------------------------------------------------------------------------

    async def ask(self, session: str, request: SessionRequest) -> SessionState:
        sessions = self.client.bus.sessions
        sequence = await sessions.request(session, request)
        return await sessions.applied(session, sequence, timeout_s=WITHIN_S)

    async def state(self, session: str) -> SessionState:
        state = (await self.client.bus.sessions.read(session)).state
        assert state is not None
        return state

    async def idle(self, session: str) -> SessionState:
        async def look() -> SessionState | None:
            state = await self.state(session)
            return state if state.active is None and not state.queue else None

        return await eventually(look, within_s=WITHIN_S, what=f"{session} is idle")

    async def box_is(self, session: str, box: str) -> SessionState:
        async def look() -> SessionState | None:
            state = await self.state(session)
            is_there = state.workspace is not None and state.workspace.box == box
            return state if is_there else None

        return await eventually(look, within_s=WITHIN_S, what=f"{session} is {box}")

    async def life_is(self, session: str, life: str) -> None:
        async def look() -> bool:
            return (await self.state(session)).life == life

        await eventually(look, within_s=WITHIN_S, what=f"{session} is {life}")

    async def command_begins(self, session: str) -> None:
        """Wait until the command that never ends has begun."""

        async def look() -> bool:
            space = (await self.state(session)).workspace
            assert space is not None
            record = await self.record_of(session_sandbox(session, space.generation))
            return await self.has_file(record, "hanging")

        await eventually(look, within_s=WITHIN_S, what=f"a command of {session} has begun")

    async def tree_of(self, session: str, number: int) -> str:
        turn = await self.client.bus.sessions.turn(session, number)
        assert turn is not None, f"{session} has no turn {number}"
        return turn.tree

    async def counted(self, tree: str) -> int:
        """How many commands ran, by their counter."""
        store = WorkspaceStore(self.client.bus)
        if await store.lookup(tree, "counter") is None:
            return 0
        parts = [part async for part in store.read_file(tree, "counter")]
        return b"".join(parts).count(b"\n")

    async def history(self, session: str) -> int:
        name = session_conversation(session)
        return len((await self.client.bus.conversations.read(name)).history)
