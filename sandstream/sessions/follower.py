"""Following a session: its state, and its turns one by one, from the log and then live.

Two tasks feed one queue. One watches the state; the other tells the turns (``turn_follower.py``).
An outage of the server stops neither: what was missed is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from sandstream_bus.logs.sessions import counted_turns
from sandstream_bus.wire.sessions import SessionState, SessionTurn

from sandstream.sessions.changes import Changes, patiently, watched
from sandstream.sessions.events import SessionChanged, SessionEvent, TurnEnded
from sandstream.sessions.link import SessionLink
from sandstream.sessions.turn_follower import TurnFollower
from sandstream.sessions.views import SessionInfo

_SILENCE_S = 10.0
"""The state is read again after a silence, in case a hint got lost."""


class SessionFollower:
    """Follows one session, once."""

    def __init__(self, link: SessionLink, session: str, *, deltas: bool, since: int | None) -> None:
        self._link = link
        self._session = session
        self._deltas = deltas
        self._since = since
        self._inbox: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        self._news = asyncio.Condition()

    async def events(self) -> AsyncGenerator[SessionEvent, None]:
        """All events, until the session is destroyed. Close it if you stop."""
        async with watched(self._link.bus, self._session) as changes:
            self._current = await self._read()
            info = await self._link.info(self._current)
            yield SessionChanged(info=info)
            if info.life == "destroyed" and self._since is None:
                return
            tasks = [
                asyncio.ensure_future(self._watch(changes, info)),
                asyncio.ensure_future(self._tell_turns(changes, self._current)),
            ]
            for task in tasks:
                task.add_done_callback(lambda _: self._inbox.put_nowait(None))
            try:
                while not all(task.done() for task in tasks) or not self._inbox.empty():
                    event = await self._inbox.get()
                    if event is not None:
                        yield event
                        continue
                    for task in tasks:
                        if task.done():
                            task.result()  # raises what went wrong
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> SessionState:
        return await self._link.requests.state(self._session)

    # --- the state -----------------------------------------------------------------------------

    async def _watch(self, changes: Changes, info: SessionInfo) -> None:
        while info.life != "destroyed":
            await changes.next(within_s=_SILENCE_S)
            found = await patiently(self._read)
            new = await patiently(partial(self._link.info, found))
            if new != info:
                info = new
                self._inbox.put_nowait(SessionChanged(info=info))
            async with self._news:
                self._current = found
                self._news.notify_all()

    # --- the turns -----------------------------------------------------------------------------

    async def _tell_turns(self, changes: Changes, first: SessionState) -> None:
        """Tell past turns if they are wanted, then each turn as it comes."""
        if self._since is not None:
            for record in await patiently(lambda: self._past(first)):
                await self._follower(record.number, record.run, changes).past()
                self._inbox.put_nowait(TurnEnded(turn=record))
        active = first.active
        number = active.number if active is not None else first.begun + 1
        while await self._has_begun(number):
            await self._tell(number, changes)
            number += 1

    async def _past(self, first: SessionState) -> Sequence[SessionTurn]:
        known = await self._link.bus.sessions.turns(self._session)
        return [it for it in counted_turns(known, first.turn) if it.number > (self._since or 0)]

    async def _has_begun(self, number: int) -> bool:
        """Wait until a turn has begun; False: it never will."""
        async with self._news:
            while self._current.begun < number:
                if self._current.life == "destroyed":
                    return False
                await self._news.wait()
        return True

    async def _tell(self, number: int, changes: Changes) -> None:
        """Tell one turn, up to its record."""
        active = self._current.active
        if active is None or active.number != number:  # it was over before this follower saw it
            record = await self._record(number)
            if record is not None:
                await self._follower(number, record.run, changes).past()
                self._inbox.put_nowait(TurnEnded(turn=record))
            return
        follower = self._follower(number, active.run, changes)
        telling = asyncio.ensure_future(follower.live())
        recording = asyncio.ensure_future(self._record(number))
        try:
            record = await recording
            if record is None or not await patiently(follower.has_run):
                telling.cancel()  # its run never began, or the session is gone
                await asyncio.gather(telling, return_exceptions=True)
            else:
                await telling
            if record is not None:
                self._inbox.put_nowait(TurnEnded(turn=record))
        finally:
            for task in (telling, recording):
                task.cancel()
            await asyncio.gather(telling, recording, return_exceptions=True)

    async def _record(self, number: int) -> SessionTurn | None:
        """Wait for the record of a turn; None: the session is destroyed, and there is none."""
        while True:
            seen = self._current
            record = await patiently(lambda: self._link.bus.sessions.turn(self._session, number))
            if record is not None or seen.life == "destroyed":
                return record
            async with self._news:
                while self._current is seen:
                    await self._news.wait()

    def _follower(self, number: int, run: str, changes: Changes) -> TurnFollower:
        follower = TurnFollower(
            self._link.bus, number, run, tell=self._inbox.put_nowait, deltas=self._deltas
        )
        follower.on_question = changes.hint
        return follower
