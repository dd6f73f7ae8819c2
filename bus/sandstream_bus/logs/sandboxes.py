"""The logs of sandboxes, and operations on sandboxes by message.

A sandbox's state is a fold over its log, written by its node with compare-and-set: if two nodes
both claim it, one of them fails. An operation is published once and its single reply is awaited; a
caller that missed the reply reads it from the log.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import NamedTuple

from sandstream_bus.errors import BusError, BusUnavailable, LogLost, MessageError, WrongSequence
from sandstream_bus.logs.codec import Codec, peek_type
from sandstream_bus.logs.presence import Presence
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_many
from sandstream_bus.nats.publication import Expect
from sandstream_bus.nats.subscription import CoreMessage
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.headers import OPERATION
from sandstream_bus.wire.sandboxes import (
    SandboxEvent,
    SandboxReply,
    SandboxRequest,
)

OWN_NODE = "own-"
"""The prefix of nodes of callers' processes (``own-<machine>_<process>``). Only a process of the
same machine, or the one that continues the run, takes over their sandboxes.
"""
PATIENCE_S = 60.0
"""How long an actor may be absent before its callers get an error."""
_LOOK_EVERY_S = 2.0


class SandboxLogEvent(NamedTuple):
    sequence: int
    event: SandboxEvent
    time: str


class SandboxMovedOn(WrongSequence):
    """Another process wrote to the sandbox's log first: read it and decide again."""


class Sandboxes:
    """All sandboxes of one installation."""

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        topology: Topology,
        presence: Presence,
    ) -> None:
        self.patience_s = PATIENCE_S
        self._presence = presence
        self._connection = connection
        self._codec = codec
        self._topology = topology
        self._subjects = topology.subjects
        self._stream = topology.log

    async def read(self, sandbox: str) -> list[SandboxLogEvent]:
        """The sandbox's whole log. Undecodable messages that no actor wrote are ignored."""
        subject = self._subjects.sandbox_state(sandbox)
        found = await fresh_many(self._connection, self._stream, subject, after=0)
        events: list[SandboxLogEvent] = []
        for it in found:
            try:
                event = await self._codec.sandbox_event(it.data)
            except MessageError:
                if it.msg_id:
                    raise
            else:
                events.append(SandboxLogEvent(it.sequence, event, it.time))
        return events

    async def append(self, sandbox: str, event: SandboxEvent, *, after: int) -> int:
        """Write a decision if the log still ends at ``after``; return its sequence."""
        subject = self._subjects.sandbox_state(sandbox)
        msg_id = f"{sandbox}:{uuid.uuid4().hex}"
        data = await self._codec.encode(event)
        while True:
            try:
                ack = await self._connection.publish(
                    subject, data, msg_id=msg_id, expect=Expect(after, subject), budget_s=None
                )
            except WrongSequence:
                news = await fresh_many(self._connection, self._stream, subject, after=after)
                if news and news[-1].msg_id == msg_id:
                    return news[-1].sequence  # our own event, whose acknowledgement was lost
                if not news or any([not await self._is_stray(it) for it in news]):
                    raise SandboxMovedOn(f"sandbox {sandbox}: its log has new events") from None
                after = news[-1].sequence  # only stray messages: the decision still fits
            else:
                return ack.seq

    async def _is_stray(self, stored: Stored) -> bool:
        if stored.msg_id:
            return False
        try:
            await self._codec.sandbox_event(stored.data)
        except MessageError:
            return True
        return False

    async def names(self) -> list[str]:
        """All sandboxes in the log."""
        found = await self._topology.subjects_of(
            self._connection, self._stream, self._subjects.sandbox_state("*")
        )
        return [self._subjects.parse_sandbox(subject).sandbox for subject in found]

    # --- operations ----------------------------------------------------------------------------

    async def request(
        self,
        sandbox: str,
        request: SandboxRequest,
        *,
        provider: str,
        node: str = "",
        headers: dict[str, str] | None = None,
        repeats: bool = False,
    ) -> SandboxReply:
        """Send an operation to the sandbox's actor and wait for its reply, however long that takes.

        ``repeats``: a process that died may have sent the same operation, and its reply may be
        stored.

        Raises :class:`NoSandboxActor` if no actor serves the provider (or node) for a long time.
        """
        subject = self._subjects.sandbox_reply(sandbox, request.op)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def receive(message: CoreMessage) -> None:
            if not answered.done() and is_reply(message.data):
                answered.set_result(message.data)

        # a stored message is also an ordinary one: subscribers get it as it is published
        known = await self._stored_reply(subject) if repeats else None
        if known is not None:
            return await self._codec.sandbox_reply(known.data)
        listening = await self._connection.subscribe(subject, receive)
        # noted first: the reply may come during a retry, or came before we listened
        breaks = -1 if repeats else self._connection.breaks
        absence = _Absence(self._presence, provider, node, every_s=self.patience_s / 6)
        try:
            await self._connection.publish(
                self._subjects.sandbox_op(sandbox, provider, node),
                await self._codec.encode(request),
                msg_id=f"{sandbox}:{request.op}",
                headers={**(headers or {}), OPERATION: request.op},
            )
            data = await self._answer(subject, answered, breaks, absence)
            return await self._codec.sandbox_reply(data)
        finally:
            await listening.close()

    async def tell(
        self, sandbox: str, request: SandboxRequest, *, provider: str, node: str = ""
    ) -> None:
        """Send an operation without waiting for the reply."""
        await self._connection.publish(
            self._subjects.sandbox_op(sandbox, provider, node),
            await self._codec.encode(request),
            msg_id=f"{sandbox}:{request.op}",
            headers={OPERATION: request.op},
            budget_s=2.0,
        )

    async def _answer(
        self,
        subject: str,
        answered: asyncio.Future[bytes],
        breaks: int,
        absence: _Absence,
    ) -> bytes:
        """The live reply; if the connection broke since ``breaks``, also the stored one."""
        guard = self._connection.guard
        epoch = guard.epoch if guard is not None else 0
        while True:
            await asyncio.wait({answered}, timeout=min(_LOOK_EVERY_S, self.patience_s))
            if answered.done():
                return answered.result()
            if guard is not None and guard.epoch != epoch:
                raise LogLost(
                    "whether the sandbox has run the request is unknown: "
                    + (guard.change.text if guard.change else "the log was lost")
                )
            if await absence.lasts_s() > self.patience_s and not answered.done():
                raise NoSandboxActor(
                    f"no actor has served {absence.whom} for {self.patience_s:.0f} s. The request "
                    "stays in the log and runs when an actor starts"
                )
            if breaks == self._connection.breaks:
                continue
            breaks = self._connection.breaks
            try:
                stored = await self._stored_reply(subject)
            except BusUnavailable:
                breaks = -1  # check again
                continue
            if stored is not None:
                return stored.data

    async def reply(
        self,
        sandbox: str,
        reply: SandboxReply,
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer an operation, at most once."""
        await self._connection.publish(
            self._subjects.sandbox_reply(sandbox, reply.op),
            await self._codec.encode(reply),
            msg_id=f"{sandbox}:{reply.op}:reply",
            headers=headers,
            budget_s=None,
        )

    async def replied(self, sandbox: str, op: str) -> bool:
        """Does the operation have its reply?"""
        subject = self._subjects.sandbox_reply(sandbox, op)
        return await self._stored_reply(subject) is not None

    async def _stored_reply(self, subject: str) -> Stored | None:
        """The reply, even if a stray message was stored after it: otherwise the operation would be
        repeated, and its caller would wait forever.
        """
        last = await fresh_last(self._connection, self._stream, subject)
        if last is None or _is_ours(last):
            return last
        found = await fresh_many(self._connection, self._stream, subject, after=0)
        return next((it for it in found if _is_ours(it)), None)


def is_reply(data: bytes) -> bool:
    """Is it an actor's reply, or a claim for one? Any publisher can direct the server's
    acknowledgements to the subject of a reply.
    """
    return peek_type(data) in (str(SandboxReply.__struct_config__.tag), "claim")


def _is_ours(stored: Stored) -> bool:
    return bool(stored.msg_id) and is_reply(stored.data)


class _Absence:
    """How long no actor has been present for one caller's request."""

    def __init__(self, presence: Presence, provider: str, node: str, *, every_s: float) -> None:
        self._presence = presence
        self._every_s = every_s
        self._consumers = [f"sandbox-{provider}-{node}"] if node else []
        if not node.startswith(OWN_NODE):
            self._consumers.append(f"sandbox-{provider}")  # its nodes take over from each other
        self.whom = f"the node {node} of the provider {provider}" if node else provider
        self._seen_at = self._looked_at = time.monotonic()

    async def lasts_s(self) -> float:
        """Checks only now and then while an actor is present, because many callers may wait."""
        now = time.monotonic()
        if now - self._looked_at >= self._every_s or self._looked_at > self._seen_at:
            self._looked_at = now
            for consumer in self._consumers:
                if await self._presence.is_served(consumer):
                    self._seen_at = time.monotonic()
                    break
        return self._looked_at - self._seen_at


class NoSandboxActor(BusError):
    """No actor serves this provider."""

    code = "no_sandbox_actor"


def new_op() -> str:
    """A unique id for an operation."""
    return f"{int(time.time()):x}-{uuid.uuid4().hex[:16]}"


def machine_of(node: str) -> str:
    """The common part of the names of nodes that can reach the same boxes."""
    return node.partition("_")[0]
