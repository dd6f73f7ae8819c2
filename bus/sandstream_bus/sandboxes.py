"""The logs of sandboxes, and operations on them by message.

A sandbox's state is a fold over its log, written by whichever node has it, under compare-and-set:
of two nodes that both think it is theirs one fails. An operation is published once and its one
reply is awaited; whoever lost the answer reads it from the log.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import NamedTuple

from sandstream_bus.codec import Codec
from sandstream_bus.connection import Connection
from sandstream_bus.direct import direct_get_last, direct_get_last_each, direct_get_many
from sandstream_bus.errors import BusError, BusUnavailable, WrongSequence
from sandstream_bus.headers import OPERATION, TTL
from sandstream_bus.presence import Presence
from sandstream_bus.publishing import Expect
from sandstream_bus.sandbox_messages import (
    Exec,
    Interact,
    RunTool,
    SandboxEvent,
    SandboxReply,
    SandboxRequest,
)
from sandstream_bus.subjects import Subjects
from sandstream_bus.subscription import CoreMessage

OPERATION_TTL_S = 3600
"""Requests and replies of session objects are not kept longer: they carry whole files."""
COMMAND_TTL_S = 7 * 86_400
"""A request that is worked on is delivered again only while it is stored, and a command may take
long.
"""
OWN_NODE = "own-"
"""Nodes of callers' processes (``own-<machine>_<process>``). Only a process of the same machine, or
the one that continues the run, takes over their sandboxes.
"""
PATIENCE_S = 60.0
"""How long an actor may be away before its callers are told."""
_LOOK_EVERY_S = 2.0
_COMMANDS = (Exec, Interact, RunTool)


class SandboxLogEvent(NamedTuple):
    sequence: int
    event: SandboxEvent
    time: str


class SandboxMovedOn(WrongSequence):
    """Somebody else wrote to the sandbox's log first: read it and decide again."""


class Sandboxes:
    """All sandboxes of one installation."""

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        subjects: Subjects,
        stream: str,
        presence: Presence,
    ) -> None:
        self.patience_s = PATIENCE_S
        self._presence = presence
        self._connection = connection
        self._codec = codec
        self._subjects = subjects
        self._stream = stream

    async def read(self, sandbox: str) -> list[SandboxLogEvent]:
        """The sandbox's whole log."""
        found = await direct_get_many(
            self._connection, self._stream, self._subjects.sandbox_state(sandbox), after=0
        )
        return [
            SandboxLogEvent(it.sequence, await self._codec.sandbox_event(it.data), it.time)
            for it in found
        ]

    async def append(self, sandbox: str, event: SandboxEvent, *, after: int) -> int:
        """Write a decision if the log still ends at ``after``; its sequence."""
        subject = self._subjects.sandbox_state(sandbox)
        msg_id = f"{sandbox}:{uuid.uuid4().hex}"
        try:
            ack = await self._connection.publish(
                subject,
                await self._codec.encode(event),
                msg_id=msg_id,
                expect=Expect(after, subject),
                budget_s=None,
            )
        except WrongSequence:
            last = await direct_get_last(self._connection, self._stream, subject)
            if last is not None and last.msg_id == msg_id:
                return last.sequence  # our own, whose acknowledgement was lost
            raise SandboxMovedOn(f"sandbox {sandbox}: its log went on") from None
        return ack.seq

    async def names(self) -> list[str]:
        """All sandboxes that the log knows."""
        subject = self._subjects.sandbox_state("*")
        found = await direct_get_last_each(self._connection, self._stream, [subject])
        return [self._subjects.parse_sandbox(it.subject).sandbox for it in found]

    # --- operations ----------------------------------------------------------------------------

    async def request(
        self,
        sandbox: str,
        request: SandboxRequest,
        *,
        provider: str,
        node: str = "",
        headers: dict[str, str] | None = None,
    ) -> SandboxReply:
        """Ask the sandbox's actor and wait for its reply, however long that takes.

        Raises :class:`NoSandboxActor` if for long nobody serves the provider (or node).
        """
        subject = self._subjects.sandbox_reply(sandbox, request.op)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def receive(message: CoreMessage) -> None:
            if not answered.done():
                answered.set_result(message.data)

        # a stored message is also an ordinary one: whoever listens gets it as it is published
        listening = await self._connection.subscribe(subject, receive)
        breaks = self._connection.breaks  # before the publish: the reply may come during its retry
        absence = _Absence(self._presence, provider, node, every_s=self.patience_s / 6)
        try:
            await self._connection.publish(
                self._subjects.sandbox_op(sandbox, provider, node),
                await self._codec.encode(request),
                msg_id=f"{sandbox}:{request.op}",
                headers={**(headers or {}), TTL: f"{ttl_of(request)}s", OPERATION: request.op},
            )
            data = await self._answer(subject, answered, breaks, absence)
            return await self._codec.sandbox_reply(data)
        finally:
            await listening.close()

    async def tell(
        self, sandbox: str, request: SandboxRequest, *, provider: str, node: str = ""
    ) -> None:
        """Ask without waiting for the reply."""
        await self._connection.publish(
            self._subjects.sandbox_op(sandbox, provider, node),
            await self._codec.encode(request),
            msg_id=f"{sandbox}:{request.op}",
            headers={TTL: f"{OPERATION_TTL_S}s", OPERATION: request.op},
            budget_s=2.0,
        )

    async def _answer(
        self,
        subject: str,
        answered: asyncio.Future[bytes],
        breaks: int,
        absence: _Absence,
    ) -> bytes:
        """The reply as it comes; after a break since ``breaks`` also as it is stored."""
        while True:
            await asyncio.wait({answered}, timeout=min(_LOOK_EVERY_S, self.patience_s))
            if answered.done():
                return answered.result()
            if await absence.lasts_s() > self.patience_s and not answered.done():
                raise NoSandboxActor(
                    f"nobody serves {absence.whom} for {self.patience_s:.0f} s; what was asked for "
                    "stays in the log and is done when somebody does"
                )
            if breaks == self._connection.breaks:
                continue
            breaks = self._connection.breaks
            try:
                stored = await direct_get_last(self._connection, self._stream, subject)
            except BusUnavailable:
                breaks = -1  # look again
                continue
            if stored is not None:
                return stored.data

    async def reply(
        self,
        sandbox: str,
        reply: SandboxReply,
        *,
        ttl_s: int = OPERATION_TTL_S,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer an operation, once. The answer is kept as long as what was asked: without it a
        repeated delivery would be taken for a new one.
        """
        await self._connection.publish(
            self._subjects.sandbox_reply(sandbox, reply.op),
            await self._codec.encode(reply),
            msg_id=f"{sandbox}:{reply.op}:reply",
            headers={**(headers or {}), TTL: f"{ttl_s}s"},
            budget_s=None,
        )

    async def replied(self, sandbox: str, op: str) -> bool:
        """Has the operation its reply?"""
        subject = self._subjects.sandbox_reply(sandbox, op)
        return await direct_get_last(self._connection, self._stream, subject) is not None


class _Absence:
    """How long nobody has been there for one caller's request."""

    def __init__(self, presence: Presence, provider: str, node: str, *, every_s: float) -> None:
        self._presence = presence
        self._every_s = every_s
        self._consumers = [f"sandbox-{provider}-{node}"] if node else []
        if not node.startswith(OWN_NODE):
            self._consumers.append(f"sandbox-{provider}")  # its nodes take over for each other
        self.whom = f"the node {node} of the provider {provider}" if node else provider
        self._seen_at = self._looked_at = time.monotonic()

    async def lasts_s(self) -> float:
        """Asked anew only now and then while somebody is there, as many callers may be waiting."""
        now = time.monotonic()
        if now - self._looked_at >= self._every_s or self._looked_at > self._seen_at:
            self._looked_at = now
            for consumer in self._consumers:
                if await self._presence.is_served(consumer):
                    self._seen_at = time.monotonic()
                    break
        return self._looked_at - self._seen_at


class NoSandboxActor(BusError):
    """Nobody serves this provider."""

    code = "no_sandbox_actor"


def ttl_of(request: SandboxRequest) -> int:
    """How long a request and its reply are kept."""
    return COMMAND_TTL_S if isinstance(request.action, _COMMANDS) else OPERATION_TTL_S


def new_op() -> str:
    """An id for an operation that nobody else has."""
    return f"{int(time.time()):x}-{uuid.uuid4().hex[:16]}"


def machine_of(node: str) -> str:
    """What nodes have in common that can reach the same boxes."""
    return node.partition("_")[0]
