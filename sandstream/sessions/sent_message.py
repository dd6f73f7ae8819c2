"""A message that was sent to a session, and the answer to it."""

from __future__ import annotations

from functools import partial

from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.sessions import QueuedMessage, SessionState, SessionTurn

from sandstream._inspect.texts import output_text
from sandstream.sessions.changes import patiently, watched
from sandstream.sessions.errors import MessageGone, TurnFailed
from sandstream.sessions.link import SessionLink

_SILENCE_S = 10.0
"""The state is read again after a silence, in case a hint got lost."""


class SentMessage:
    """A message in the queue of a session, or in one of its turns.

    Args:
        link: The client's connection to sessions.
        session: The id of the session.
        id: The id of the message.
        after: The last turn that had begun before the message was sent.

    Example:
        sent = await session.send("Which files are there?")
        print(await sent.answer())
    """

    def __init__(self, link: SessionLink, session: str, id: str, after: int) -> None:
        self._link = link
        self._after = after
        self._record: SessionTurn | None = None
        self.session = session
        self.id = id

    async def turn(self) -> SessionTurn:
        """Wait until the turn that took the message is finished, and its checkpoint is taken.

        Returns:
            The record of the turn.

        Raises:
            MessageGone: The message was removed, or the session ended, before a turn took it.
        """
        async with watched(self._link.bus, self.session) as changes:
            while self._record is None:
                state = await patiently(self._state)
                is_at_work = state.active is not None and _has(state.active.messages, self.id)
                if not is_at_work:
                    self._record = await patiently(partial(self._finished, state.begun))
                    if self._record is not None:
                        break
                    is_over = state.life in ("destroying", "destroyed")
                    if is_over or not _has(state.queue, self.id):
                        raise MessageGone(self.session, self.id)
                await changes.next(within_s=_SILENCE_S)
            return self._record

    async def answer(self) -> str:
        """Wait for the turn that took the message, up to its checkpoint. To see the answer while
        it is written, use :meth:`DurableSession.follow`.

        Returns:
            The final text of the turn. Structured output is JSON.

        Raises:
            MessageGone: The message was removed, or the session ended, before a turn took it.
            TurnFailed: The turn ended without an answer.
        """
        turn = await self.turn()
        if turn.status != "completed":
            raise TurnFailed(self.session, turn.number, turn.status, turn.error)
        bus = self._link.bus
        done = await patiently(lambda: bus.log.observed_last(bus.subjects.done(turn.run)))
        if done is None or not isinstance(done.event, RunDone) or not done.event.output:
            return turn.said  # the run has expired
        return output_text(done.event.output)

    async def _state(self) -> SessionState:
        return await self._link.requests.state(self.session)

    async def _finished(self, last: int) -> SessionTurn | None:
        """The finished turn that took the message, if one did. No turn is read twice."""
        if last <= self._after:
            return None
        sessions = self._link.bus.sessions
        if last == self._after + 1:
            only = await sessions.turn(self.session, last)
            known = [only] if only is not None else []
        else:
            known = await sessions.turns(self.session)
        found = next((it for it in known if _has(it.input, self.id)), None)
        if known and known[-1].number == last:  # all of them are finished
            self._after = last
        return found


def _has(messages: list[QueuedMessage], id: str) -> bool:
    return any(it.id == id for it in messages)
