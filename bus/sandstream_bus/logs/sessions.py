"""Sessions: their requests, their states, replaced with compare-and-set, and their finished turns.

The sessions actor follows the requests to a session and writes its state. All other programs
publish requests and read states. After each new state a hint goes to the session's live subject.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from sandstream_bus.errors import (
    BusError,
    InvalidSubject,
    MessageError,
    PayloadTooLarge,
    UndecodableMessage,
    WrongSequence,
)
from sandstream_bus.logs.codec import NOT_JSON, Codec
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_last_each, fresh_many
from sandstream_bus.nats.publication import Expect
from sandstream_bus.nats.topology import REQUEST_LIMIT_BYTES, Topology
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.message_base import ErrorInfo
from sandstream_bus.wire.sessions import (
    REQUEST_KINDS,
    SessionRequest,
    SessionState,
    SessionTurn,
)
from sandstream_bus.wire.subjects import user_of

logger = logging.getLogger(__name__)

_KIND_OF = {kind: name for name, kind in REQUEST_KINDS.items()}
_HEADROOM_BYTES = 4096
"""Space for the subject and the headers of a request."""
TURN_REFRESH_S = 12 * 3600.0
"""The record of the last turn is stored again if it is older when the state changes."""
_LOOK_EVERY_S = 2.0
"""How often a waiting caller reads the state, in case a hint got lost."""


class StoredSession(NamedTuple):
    """The state of a session, and where it is."""

    state: SessionState | None
    """None: there is no such session."""
    sequence: int
    """The sequence of the last message of its subject; 0: none."""


class StoredAsk(NamedTuple):
    """A request to a session as it is stored."""

    sequence: int
    kind: str
    request: SessionRequest | None
    """None: it cannot be read."""
    why: str
    """Why it cannot be read."""
    user: str
    time: str
    """When it was stored, in RFC 3339."""
    traceparent: str


class SessionMovedOn(WrongSequence):
    """Another process has written the state of the session: read it and decide again."""


class SessionRefused(BusError):
    """A request to a session had no effect; ``info`` says why."""

    code = "session.refused"

    def __init__(self, session: str, kind: str, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.session = session
        self.kind = kind
        self.info = info
        """The reason; its ``code`` names the kind of refusal."""


def decode_request(kind: str, data: bytes) -> SessionRequest:
    """The request of this kind; raises :class:`UndecodableMessage`."""
    make = REQUEST_KINDS.get(kind)
    if make is None:
        raise UndecodableMessage(
            f"a session does not know {kind[:80]!r}; it knows {', '.join(REQUEST_KINDS)}"
        )
    try:
        data.decode()  # a context is passed on unchanged and not parsed
        return msgspec.json.decode(data or b"{}", type=make)
    except NOT_JSON as error:
        raise UndecodableMessage(f"the message does not fit its schema: {error}") from error


class Sessions:
    """All sessions of one installation."""

    def __init__(self, connection: Connection, codec: Codec, topology: Topology) -> None:
        self._connection = connection
        self._codec = codec
        self._topology = topology
        self._subjects = topology.subjects

    # --- requests ------------------------------------------------------------------------------

    async def request(
        self,
        session: str,
        request: SessionRequest,
        *,
        user: str = "",
        msg_id: str = "",
        headers: dict[str, str] | None = None,
    ) -> int:
        """Publish a request; return its sequence, which :meth:`applied` waits for.

        Args:
            session: The id of the session.
            request: What is wanted.
            user: The user who asks; empty: the owner of the session.
            msg_id: The server stores a request with the same id once; empty: a new one.
            headers: More headers, such as the trace context.
        """
        kind = _KIND_OF[type(request)]
        data = msgspec.json.encode(request)
        if len(data) > REQUEST_LIMIT_BYTES - _HEADROOM_BYTES:
            limit = REQUEST_LIMIT_BYTES - _HEADROOM_BYTES
            raise PayloadTooLarge(f"a request to a session ({kind})", len(data), limit)
        ack = await self._connection.publish(
            self._subjects.ask_session(user or user_of(session), session, kind),
            data,
            msg_id=msg_id or f"{session}:{kind}:{uuid.uuid4().hex}",
            headers=headers,
        )
        return ack.seq

    async def applied(
        self, session: str, sequence: int, *, timeout_s: float | None = None
    ) -> SessionState:
        """Wait until the request at ``sequence`` has had its effect; return the state then.

        A fork, a switch, a rewind and opening the workspace have their effect when they are done,
        which may be after the turn at work.

        Raises :class:`SessionRefused` if it had no effect, and :class:`TimeoutError`.
        """
        changed = asyncio.Event()
        listening = await self._connection.subscribe(
            self._subjects.session_changed(session), lambda _: changed.set()
        )
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed.clear()
                    state = (await self.read(session)).state
                    if state is not None and is_settled(state, sequence):
                        break
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), _LOOK_EVERY_S)
        finally:
            await listening.close()
        for refusal in state.refused:
            if refusal.request == sequence:
                raise SessionRefused(session, refusal.kind, refusal.error)
        return state

    async def unapplied(self, session: str, *, after: int) -> list[StoredAsk]:
        """The requests of the session's owner after a sequence, in the order of the stream."""
        subject = self._subjects.ask_session(user_of(session), session, "*")
        found = await fresh_many(self._connection, self._topology.requests, subject, after=after)
        return [self._ask(it) for it in found]

    def _ask(self, stored: Stored) -> StoredAsk:
        where = self._subjects.parse_session_ask(stored.subject)
        request, why = None, ""
        try:
            request = decode_request(where.kind, stored.data)
        except UndecodableMessage as error:
            why = str(error)
        trace = stored.headers.get(TRACEPARENT, "")
        return StoredAsk(stored.sequence, where.kind, request, why, where.user, stored.time, trace)

    # --- states --------------------------------------------------------------------------------

    async def read(self, session: str) -> StoredSession:
        """The state of the session, from the leader of the log."""
        last = await fresh_last(
            self._connection, self._topology.log, self._subjects.session_state(session)
        )
        if last is None:
            return StoredSession(None, 0)
        return StoredSession(await self._readable(last), last.sequence)

    async def _readable(self, last: Stored) -> SessionState | None:
        """The last state that an actor wrote: servers also store messages that have no id."""
        try:
            return await self._state(last)
        except MessageError:
            if last.msg_id:
                raise
        found = await fresh_many(self._connection, self._topology.log, last.subject, after=0)
        ours = next((it for it in reversed(found) if it.msg_id), None)
        return await self._state(ours) if ours is not None else None

    async def _state(self, stored: Stored) -> SessionState:
        message = await self._codec.session_message(stored.data)
        if not isinstance(message, SessionState):
            raise UndecodableMessage(f"{stored.subject} has a message that is not a state")
        return message

    async def write(self, state: SessionState, *, after: int) -> int:
        """Replace the state if it still is the one at ``after``; return the new sequence.

        Raises :class:`SessionMovedOn`.
        """
        session = state.session
        subject = self._subjects.session_state(session)
        msg_id = f"{session}:state:{uuid.uuid4().hex}"
        try:
            ack = await self._connection.publish(
                subject,
                await self._codec.encode(state),
                msg_id=msg_id,
                expect=Expect(after, subject),
                budget_s=None,
            )
            sequence = ack.seq
        except WrongSequence:
            last = await fresh_last(self._connection, self._topology.log, subject)
            if last is None or last.msg_id != msg_id:
                raise SessionMovedOn(f"session {session}: its state has changed") from None
            sequence = last.sequence  # our own state, whose acknowledgement was lost
        await self._connection.publish_core(self._subjects.session_changed(session), b"")
        return sequence

    async def states(self) -> list[SessionState]:
        """The states of all sessions, the last changed one last; also of destroyed ones. One that
        cannot be read is left out: the others must stay visible.
        """
        subjects = await self._topology.subjects_of(
            self._connection, self._topology.log, self._subjects.session_states()
        )
        mine: list[str] = []
        for subject in subjects:
            with contextlib.suppress(InvalidSubject):  # a server's own message
                self._subjects.parse_session_state(subject)
                mine.append(subject)
        found = await fresh_last_each(self._connection, self._topology.log, mine)
        states: list[SessionState] = []
        for it in found:
            try:
                state = await self._readable(it)
            except MessageError as error:
                facts = {"subject": it.subject, "why": str(error)}
                logger.warning("the state of a session cannot be read", extra=facts)
            else:
                states += [state] if state is not None else []
        return states

    # --- turns ---------------------------------------------------------------------------------

    async def turn(self, session: str, number: int) -> SessionTurn | None:
        """The record of a finished turn; None: there is none, or it has expired."""
        subject = self._subjects.session_turn(session, number)
        stored = await fresh_last(self._connection, self._topology.log, subject)
        return await self._turn(stored) if stored is not None else None

    async def turns(self, session: str) -> list[SessionTurn]:
        """The records of all finished turns, by number; also of turns that were taken back."""
        subjects = await self._topology.subjects_of(
            self._connection, self._topology.log, self._subjects.session_turn(session, "*")
        )
        found = await fresh_last_each(self._connection, self._topology.log, subjects)
        records = [it for it in [await self._turn(each) for each in found] if it is not None]
        return sorted(records, key=lambda it: it.number)

    async def _turn(self, last: Stored) -> SessionTurn | None:
        """The record on the subject of this last message, which may be one of the server's own."""
        if last.msg_id:
            return await self._record(last)
        found = await fresh_many(self._connection, self._topology.log, last.subject, after=0)
        ours = next((it for it in found if it.msg_id), None)
        return await self._record(ours) if ours is not None else None

    async def _record(self, stored: Stored) -> SessionTurn | None:
        message = await self._codec.session_message(stored.data)
        return message if isinstance(message, SessionTurn) else None

    async def record(self, session: str, turn: SessionTurn) -> None:
        """Write the record of a finished turn, once."""
        subject = self._subjects.session_turn(session, turn.number)
        data = await self._codec.encode(turn)
        after = 0
        while True:
            try:
                await self._connection.publish(
                    subject,
                    data,
                    msg_id=f"{session}:turn:{turn.number}",
                    expect=Expect(after, subject),
                    budget_s=None,
                )
            except WrongSequence:
                last = await fresh_last(self._connection, self._topology.log, subject)
                if last is None or await self._turn(last) is not None:
                    return  # a replica was faster: the turn has its record
                after = last.sequence  # a message of the server is no record
            else:
                return

    async def renew_turn(self, session: str, number: int) -> None:
        """Store the record of a turn again if it is old; it lives as long as a new one then."""
        subject = self._subjects.session_turn(session, number)
        last = await fresh_last(self._connection, self._topology.log, subject)
        if last is None or not last.msg_id or _age_s(last.time) < TURN_REFRESH_S:
            return
        with contextlib.suppress(WrongSequence):  # another replica was faster
            await self._connection.publish(
                subject,
                last.data,
                msg_id=f"{session}:turn:{number}:{uuid.uuid4().hex}",
                expect=Expect(last.sequence, subject),
                budget_s=None,
            )


def _age_s(time: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()


def is_settled(state: SessionState, sequence: int) -> bool:
    """Is the request at this sequence part of the state, and done?"""
    under_way = [it.request for it in (state.fork, state.switch, state.rewind) if it is not None]
    return state.through >= sequence and sequence not in (*under_way, state.opening)


def counted_turns(turns: Iterable[SessionTurn], last: int) -> list[SessionTurn]:
    """The turns that are part of the conversation, in order: those before ``last``, and itself."""
    by_number = {it.number: it for it in turns}
    found: list[SessionTurn] = []
    while last and (turn := by_number.get(last)) is not None:
        found.append(turn)
        last = turn.after if turn.after < turn.number else 0
    return found[::-1]
