"""Publishes with acknowledgement: repeats until the message is stored, and finds out why not.

nats-server does not answer at all if it cannot write, so missing answers are investigated. Knows
the connection, but neither runs nor actors.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import msgspec

from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusError, BusUnavailable, LogLost, NoResponders, StoreFull
from sandstream_bus.nats.faults import store_key, why_unstored
from sandstream_bus.nats.publication import (
    Expect,
    PubAck,
    check_published,
    decode_ack,
    publish_error,
)
from sandstream_bus.wire import headers as h

if TYPE_CHECKING:
    from sandstream_bus.nats.connection import Connection

ACK_TIMEOUT_S = 2.0
PUBLISH_BUDGET_S = 30.0


class Publisher:
    """Publishes on one connection; see :meth:`Connection.publish`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        msg_id: str,
        headers: dict[str, str] | None,
        expect: Expect | None,
        budget_s: float | None,
    ) -> PubAck:
        check_published(subject)
        c = self._connection
        head = dict(headers) if headers else {}
        head[h.MSG_ID] = msg_id
        if expect is not None:
            head[h.EXPECTED_SEQUENCE] = str(expect.sequence)
            head[h.EXPECTED_SUBJECT] = expect.subject
        deadline = time.monotonic() + (float("inf") if budget_s is None else budget_s)
        unanswered = 0
        crashpoint("bus.before_publish")
        while True:
            if c.guard is not None:
                await c.guard.admit(deadline)
            failure = await self._publish_once(subject, data, head)
            if isinstance(failure, PubAck):
                crashpoint("bus.after_publish")
                self._stored(failure, msg_id)
                return failure
            if isinstance(failure, StoreFull) and budget_s is None:
                c.troubles.report(failure, store_key(failure.stream))
                await asyncio.sleep(0.5)
            elif isinstance(failure, BusError) and not isinstance(failure, BusUnavailable):
                raise failure
            elif c.is_connected:
                unanswered += 1
                cause = await self._why_unstored(subject, failure, unanswered)
                if isinstance(cause, LogLost) and budget_s is not None:
                    raise cause from failure
                failure = cause
            if time.monotonic() > deadline or c.is_closing:
                if isinstance(failure, StoreFull):
                    raise failure
                raise BusUnavailable(
                    f"publishing to {subject} was not acknowledged within {budget_s} s "
                    f"({c.last_error or failure!r}). Is the NATS server at {c.url} up, "
                    "with JetStream enabled?"
                ) from failure
            await asyncio.sleep(0.05 * random.uniform(0.5, 1.5))
            if not c.is_connected:
                await c.wait_connected(1.0)

    async def _publish_once(
        self, subject: str, data: bytes, headers: dict[str, str]
    ) -> PubAck | BaseException:
        """The acknowledgement, or the failure."""
        try:
            reply = await self._connection.request(
                subject, data, headers=headers, timeout_s=ACK_TIMEOUT_S
            )
            ack = decode_ack(reply.data)
        except (TimeoutError, BusUnavailable, msgspec.DecodeError) as error:
            return error
        if ack.error is None:
            return ack
        failure = publish_error(ack.error, subject)
        if isinstance(failure, StoreFull):
            failure.stream = ack.stream
        return failure

    def _stored(self, ack: PubAck, msg_id: str) -> None:
        self._connection.troubles.over(store_key(ack.stream))
        self._connection.troubles.over(BusUnavailable.code)
        if self._connection.guard is not None and ack.stream == self._connection.guard.stream:
            self._connection.guard.saw(ack.seq, "" if ack.duplicate else msg_id)

    async def _why_unstored(
        self, subject: str, failure: BaseException, unanswered: int
    ) -> BaseException:
        """The cause of a missing acknowledgement, if it can be found; also reports it as a fault.

        A single late answer is not a fault: only the second one in a row is investigated.
        """
        if not isinstance(failure, NoResponders) and unanswered < 2:
            return failure
        found = await why_unstored(self._connection, subject)
        if found is None:
            return failure
        key, cause = found
        if isinstance(cause, LogLost):
            if self._connection.guard is not None:
                self._connection.guard.doubt()
        else:
            self._connection.troubles.report(cause, key)
        return cause
