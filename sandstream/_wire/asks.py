"""Requests of a user about agents, runs and memories. They are published where outside users may
write, and awaited in the log, where a harness writes the allowed ones.

A request names the owner of the run. The permissions of the NATS server decide which users may ask
in that name.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from sandstream_bus.bus import Bus
from sandstream_bus.errors import PayloadTooLarge, PermissionDenied
from sandstream_bus.logs.codec import decode_parked, encode
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.fresh import fresh_last, fresh_many
from sandstream_bus.nats.leader import Stored
from sandstream_bus.nats.publication import header_bytes
from sandstream_bus.nats.topology import REQUEST_LIMIT_BYTES
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.memories import MergeRequested
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    CancelRequested,
    InputStaged,
    RetryRequested,
    Task,
)
from sandstream_bus.wire.subjects import (
    SHARED,
    AskKind,
    RunId,
    check_user,
    run_of_user,
    user_of,
)

from sandstream.exceptions import UserError

CONSUMER = "asks"
"""The harnesses' consumer that carries requests to the log."""
PATIENCE_S = 10.0
"""How long to wait until a request is in the log."""
_SHORTEST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_LOOK_AROUND_S = 0.1
"""After this time, check whether the request was refused, or whether no harness is running."""


class AskRefused(UserError):
    """A harness checked the request and refused it."""

    code = "ask_refused"


class AskUnanswered(UserError):
    """The request is stored, but it has not reached the log yet."""

    code = "ask_unanswered"


class NotYourName(UserError):
    """The server does not let this user ask in the name of the run's owner."""

    code = "not_your_name"


class Asks:
    """The requests of one user."""

    def __init__(self, bus: Bus, user: str) -> None:
        self._bus = bus
        self.user = check_user(user)
        self.patience_s = PATIENCE_S
        self._may_read_parked = True
        self._may_ask_alive = True

    def recorded_by(self, run: str, by: str) -> str:
        """The user that the log will name as a request's author, if the caller passes ``by``."""
        owner = user_of(run)
        return by if owner == SHARED else owner

    async def submit(self, agent: str, task: Task, *, key: str, headers: dict[str, str]) -> RunId:
        """Publish a task of this user; return the id of its run.

        The key is our own header and not the message id: the server would treat the same message id
        of two users as the same message.
        """
        subject = self._bus.subjects.ask_task(self.user, agent)
        await self._publish(subject, task, self.user, {**headers, h.KEY: key})
        return run_of_user(self.user, key)

    async def of_run(
        self,
        run: RunId,
        kind: AskKind,
        message: CancelRequested | RetryRequested | InputStaged | ApprovalDecided,
    ) -> LogEvent:
        """Publish a request about a run in the name of its owner; return the resulting event."""
        s = self._bus.subjects
        target = {
            "cancel": s.cancel(run),
            "retry": s.turn(run, "*"),
            "input": s.input(run),
            "approval": s.approval_decided(run),
        }[kind]
        owner = user_of(run)
        stored = await self._carried(s.ask_run(owner, run, kind), message, owner, target)
        return await self._bus.log.decoded(stored)

    async def merge(self, scope: str, message: MergeRequested) -> int:
        """Request the consolidation of a memory; return the sequence of the resulting event."""
        s = self._bus.subjects
        subject = s.ask_merge(self.user, scope)
        return (await self._carried(subject, message, self.user, s.memory_merge(scope))).sequence

    async def _carried(self, subject: str, message: Any, owner: str, target: str) -> Stored:
        """Publish a request, and wait until a harness has carried it to ``target``."""
        bus = self._bus
        last = await fresh_last(bus.connection, bus.topology.log, target)
        sequence = await self._publish(subject, message, owner, {})
        return await self._effect(subject, sequence, target, last.sequence if last else 0)

    async def _publish(
        self, subject: str, message: Any, owner: str, headers: dict[str, str]
    ) -> int:
        connection = self._bus.connection
        data, msg_id = encode(message), uuid.uuid4().hex
        size = len(data) + header_bytes({**headers, h.MSG_ID: msg_id})
        limit = min(REQUEST_LIMIT_BYTES, connection.max_payload_bytes)
        if size > limit:
            what = "a task" if isinstance(message, Task) else "a request"
            raise PayloadTooLarge(f"{what} of the user {self.user}", size, limit)
        try:
            ack = await connection.publish(subject, data, msg_id=msg_id, headers=headers)
        except PermissionDenied as error:
            if owner == self.user:
                raise
            whom = "no user" if owner == SHARED else f"the user {owner}"
            raise NotYourName(
                f"that run belongs to {whom}, so {self.user} may not send requests for it: {error}"
            ) from error
        return ack.seq

    async def _effect(self, subject: str, asked: int, target: str, after: int) -> Stored:
        """The event that a harness wrote for the request at the sequence ``asked``."""
        bus = self._bus
        began = time.monotonic()
        pause_s = _SHORTEST_PAUSE_S
        while True:
            for stored in await fresh_many(bus.connection, bus.topology.log, target, after=after):
                after = stored.sequence
                if stored.msg_id.startswith(f"ask:{asked}:"):
                    return stored
            waited_s = time.monotonic() - began
            if waited_s > _LOOK_AROUND_S:
                await self._raise_if_refused(asked)
                await self._raise_if_alone(subject, asked)
            if waited_s > self.patience_s:
                raise AskUnanswered(
                    f"the request {asked} on {subject} is stored, but did not reach the log within "
                    f"{self.patience_s:g} s: either no harness is running (`sandstream up`), or "
                    f"the request was refused. An administrator finds the reason with "
                    f"`sandstream parked` under {CONSUMER}/{asked}"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _raise_if_refused(self, asked: int) -> None:
        if not self._may_read_parked:
            return
        bus = self._bus
        subject = bus.subjects.parked(CONSUMER, asked)
        try:
            parked = await fresh_last(bus.connection, bus.topology.parked, subject)
        except PermissionDenied:
            self._may_read_parked = False
            return
        if parked is not None:
            raise AskRefused(f"the request was refused: {decode_parked(parked.data).reason}")

    async def _raise_if_alone(self, subject: str, asked: int) -> None:
        if not self._may_ask_alive:
            return
        try:
            is_served = await self._bus.presence.is_served(CONSUMER)
        except PermissionDenied:
            self._may_ask_alive = False
            return
        if not is_served:
            raise AskUnanswered(
                f"no harness is running that takes requests: {subject} is stored at {asked} and "
                "takes effect when a harness starts (`sandstream up`)"
            )
