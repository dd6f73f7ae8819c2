"""What a session screen shows and acts on: a durable session, or a single run.

Both give the same events and take the same actions; what a run cannot do is refused with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import NamedTuple

from sandstream_bus.logs.sessions import counted_turns
from sandstream_bus.wire.sessions import ForkOrigin

from sandstream.client import Client
from sandstream.exceptions import UserError
from sandstream.sessions import DurableSession, SessionEvent, TurnEnded
from sandstream.sessions.turn_follower import TurnFollower


class ForkedHere(NamedTuple):
    """Marks where a fork begins: the blocks before it belong to its source."""

    origin: ForkOrigin
    is_gone: bool = False
    """The log no longer has the source."""


WorkEvent = SessionEvent | ForkedHere


class Work(ABC):
    """A session or a run.

    Args:
        client: The connection; its owner closes it.
        id: The id of the session or run.
    """

    is_session = False

    def __init__(self, client: Client, id: str) -> None:
        self.client = client
        self.id = id

    @abstractmethod
    def follow(self) -> AsyncGenerator[WorkEvent, None]:
        """All events, from the log and then live. Close it if you stop."""

    @abstractmethod
    async def send(self, text: str) -> str:
        """Send a message; return what happened to it, for people."""

    @abstractmethod
    async def interrupt(self, turn: int | None) -> None:
        """Stop the turn at work."""

    def session(self) -> DurableSession:
        """The session.

        Raises:
            UserError: It is a run.
        """
        raise UserError("this is a single run: only sessions can do that")


class SessionWork(Work):
    """A durable session.

    Args:
        client: The connection; its owner closes it.
        session: The session.
    """

    is_session = True

    def __init__(self, client: Client, session: DurableSession) -> None:
        super().__init__(client, session.id)
        self._session = session

    def session(self) -> DurableSession:
        return self._session

    async def follow(self) -> AsyncGenerator[WorkEvent, None]:
        info = await self._session.info()
        if info.origin is not None:
            async for event in self._before(info.origin):
                yield event
        async with contextlib.aclosing(self._session.follow(since=0)) as events:
            async for own in events:
                yield own

    async def _before(self, origin: ForkOrigin) -> AsyncGenerator[WorkEvent, None]:
        """The turns that a fork has from its source, and from the source of that."""
        try:
            source = await self.client.sessions.get(origin.session)
            info, turns = await source.info(), await source.turns(rewound=True)
        except UserError:  # the log no longer has it
            yield ForkedHere(origin, is_gone=True)
            return
        if info.origin is not None:
            async for event in self._before(info.origin):
                yield event
        for turn in counted_turns(turns, origin.turn):
            told: list[SessionEvent] = []
            await TurnFollower(
                self.client.bus, turn.number, turn.run, tell=told.append, deltas=False
            ).past()
            for step in told:
                yield step
            yield TurnEnded(turn=turn)
        yield ForkedHere(origin)

    async def send(self, text: str) -> str:
        await self._session.send(text)
        return ""

    async def interrupt(self, turn: int | None) -> None:
        await self._session.interrupt(turn=turn, reason="interrupted from the terminal UI")


class RunWork(Work):
    """A single run."""

    async def follow(self) -> AsyncGenerator[WorkEvent, None]:
        inbox: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        follower = TurnFollower(self.client.bus, 0, self.id, tell=inbox.put_nowait, deltas=True)
        task = asyncio.ensure_future(follower.live())
        task.add_done_callback(lambda _: inbox.put_nowait(None))
        try:
            while (event := await inbox.get()) is not None:
                yield event
            task.result()  # raises what went wrong
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(task, return_exceptions=True)

    async def send(self, text: str) -> str:
        summary = await self.client.get(self.id)
        if summary.is_over:
            raise UserError(
                "the run has ended and takes no more messages; start a session with n in the list"
            )
        await self.client.send_input(self.id, text)
        return "the next model call sees the message"

    async def interrupt(self, turn: int | None) -> None:
        await self.client.cancel(self.id, reason="cancelled from the terminal UI")
