"""The connection to NATS: publish with acknowledgement, requests, subscriptions; survives restarts.

Owns the nats-py client and works around its traps: if the connection breaks, a pending publish
fails at once and is repeated under the same message id; a client that nats-py closed permanently is
replaced; callbacks never raise into its read loop; a forbidden publish raises instead of timing
out. Does not know runs or actors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import nats
import nats.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import (
    ConnectionClosedError,
    ConnectionDrainingError,
    OutboundBufferLimitError,
)

from sandstream_bus.errors import (
    BusError,
    BusUnavailable,
    NoResponders,
    PayloadTooLarge,
)
from sandstream_bus.nats.client import MendedClient
from sandstream_bus.nats.faults import (
    BREAK_S,
    CONNECTION,
    Troubles,
    is_hopeless,
    is_refusal,
)
from sandstream_bus.nats.publication import Expect, PubAck, header_bytes
from sandstream_bus.nats.publisher import ACK_TIMEOUT_S, Publisher
from sandstream_bus.nats.publisher import PUBLISH_BUDGET_S as PUBLISH_BUDGET_S
from sandstream_bus.nats.subscription import CoreMessage, MessageHandler, Subscription, is_inbox
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.error_text import named_error
from sandstream_bus.wire.replies import OneReply, Replies, RepliesToEnd, SoManyReplies

if TYPE_CHECKING:
    from sandstream_bus.nats.connect_options import ConnectOptions, ServerReviver
    from sandstream_bus.nats.log_guard import LogGuard

logger = logging.getLogger(__name__)

_REFUSED = (
    "The server answers, but refuses this user: check the credentials (NATS_USER and "
    "NATS_PASSWORD, or those in NATS_URL)."
)
_UNREACHABLE = "Start the server, or check NATS_URL (see `sandstream doctor`)."
_CREDENTIALS = re.compile(r"(?<=://)[^/]*@|^[^/]*@")
_DENIED = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)


class Connection:
    """One connection. Its opener closes it."""

    def __init__(self, options: ConnectOptions, reviver: ServerReviver | None) -> None:
        self._options = options
        self._reviver = reviver
        self._client: NatsClient = MendedClient()
        self._subscriptions: set[Subscription] = set()
        self._replies = Replies()
        self._inbox = ""
        self._connected = asyncio.Event()
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_reconnect: set[Callable[[], Awaitable[None]]] = set()
        self.last_error: str = ""
        self.troubles = Troubles()
        self._publisher = Publisher(self)
        self.guard: LogGuard | None = None
        """Watches the log; None for connections that carry only objects."""
        self.no_direct_gets: set[str] = set()
        """The streams for which the server refuses direct gets to this user (see :mod:`direct`)."""
        self.reconnects = 0
        self.breaks = 0
        """The number of lost connections; incremented before anything arrives on the next one."""

    @classmethod
    async def open(
        cls, options: ConnectOptions, reviver: ServerReviver | None = None
    ) -> Connection:
        """Connect, or raise :class:`BusUnavailable` with advice."""
        self = cls(options, reviver)
        for tries_left in (2, 1, 0):
            try:
                await self._build_client(first=True)
                break
            except BusUnavailable as error:
                # A server that refuses closes the connection at once, and its reason may get lost.
                if tries_left == 0 or not isinstance(error.__cause__, ConnectionResetError):
                    raise
        return self

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    @property
    def is_closing(self) -> bool:
        return self._closing

    @property
    def max_payload_bytes(self) -> int:
        return int(self._client.max_payload)

    @property
    def server_version(self) -> str:
        return str(self._client.connected_server_version)

    @property
    def url(self) -> str:
        """The server's URL for messages and logs, without credentials."""
        return _CREDENTIALS.sub("", self._options.servers[0])

    @property
    def is_private(self) -> bool:
        """Is it a private server, which a keeper restarts?"""
        return self._reviver is not None

    def report_trouble(self, error: BusError) -> None:
        """Report a fault that delays work to the callers that wait for it."""
        self.troubles.report(error)

    # --- publishing ----------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        msg_id: str,
        headers: dict[str, str] | None = None,
        expect: Expect | None = None,
        budget_s: float | None = PUBLISH_BUDGET_S,
    ) -> PubAck:
        """Store a message; return once the server has acknowledged it.

        Repeats under the same ``msg_id`` until it is acknowledged or ``budget_s`` is over. ``None``
        repeats without limit, even if the store is full, for messages that must not be lost. After
        a repeat, a lost compare-and-set may be our own earlier success: on :class:`WrongSequence`
        the caller checks the log. While the log is lost (see :class:`LogGuard`) nothing is
        published.
        """
        return await self._publisher.publish(
            subject, data, msg_id=msg_id, headers=headers, expect=expect, budget_s=budget_s
        )

    async def publish_core(self, subject: str, data: bytes) -> None:
        """Send without storing. Lost without a subscriber or a connection; never blocks."""
        if self.is_connected:
            with contextlib.suppress(
                ConnectionClosedError, ConnectionDrainingError, OutboundBufferLimitError
            ):
                await self._client.publish(subject, data)

    def publish_now(self, subject: str, messages: Sequence[bytes]) -> None:
        """Like :meth:`publish_core`, but written to the socket before this returns, in one write.

        nats-py's own method takes two more turns of the event loop, which delays the first token.
        A message over the server's limit is lost: the server would close the connection.
        """
        if not self.is_connected or self._client._transport is None:
            return
        limit = self.max_payload_bytes
        fitting = [it for it in messages if len(it) <= limit]
        if len(fitting) < len(messages):
            extra = {"subject": subject, "limit_bytes": limit}
            logger.warning("a live message is lost: it is over the server's limit", extra=extra)
        parts = (b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(it), it) for it in fitting)
        self._client._transport.write(b"".join(parts))

    def answer(self, question: CoreMessage, data: bytes) -> None:
        """Answer from a message handler, which cannot wait.

        The sender of a question chooses the reply subject, and the answer is published there with
        our permissions. So only an inbox is accepted; other questions are ignored.
        """
        if not is_inbox(question.reply, self._options.inbox_prefix):
            extra = {"subject": question.subject, "reply": question.reply}
            logger.debug("ignored a question without an inbox for the answer", extra=extra)
            return
        self._spawn(self.publish_core(question.reply, data))

    async def send(self, subject: str, data: bytes, reply: str = "") -> None:
        """Send a protocol message (ack, pull request) on the current connection."""
        try:
            await self._client.publish(subject, data, reply=reply)
        except (ConnectionClosedError, ConnectionDrainingError, OutboundBufferLimitError) as error:
            raise BusUnavailable(f"not connected: {error}") from error

    # --- requests ------------------------------------------------------------------------------

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = ACK_TIMEOUT_S,
    ) -> Msg:
        """One request, one reply. TimeoutError, or BusUnavailable if the connection breaks."""
        with OneReply(self._replies, subject, timeout_s) as expected:
            await self._send_request(subject, data, expected.number, headers)
            message = await expected.all()
        if not message.data and message.headers and message.headers.get(h.STATUS) == "503":
            self._raise_if_lost(subject)
            raise NoResponders(f"no responder on {subject}: is JetStream enabled?")
        return message

    async def request_many(
        self, subject: str, data: bytes, *, timeout_s: float = 5.0
    ) -> tuple[list[Msg], Msg]:
        """One request, many replies, ended by an empty status message, which is also returned.

        TimeoutError if nothing arrives for ``timeout_s``.
        """
        with RepliesToEnd(self._replies, subject, timeout_s) as expected:
            await self._send_request(subject, data, expected.number, None)
            *found, end = await expected.all()
        if (end.headers or {}).get(h.STATUS) == "503":
            self._raise_if_lost(subject)
        return found, end

    async def request_each(
        self, subject: str, payloads: Sequence[bytes], *, timeout_s: float = ACK_TIMEOUT_S
    ) -> list[Msg]:
        """Many requests to one subject, in one write; returns their replies, in any order.

        TimeoutError if a reply is missing.
        """
        if not self.is_connected or self._client._transport is None:
            raise BusUnavailable(f"not connected to {self.url}")
        with SoManyReplies(self._replies, subject, timeout_s, len(payloads)) as expected:
            head = f"PUB {subject} {self._inbox}.{expected.number} ".encode()
            parts = (b"%b%d\r\n%b\r\n" % (head, len(it), it) for it in payloads)
            self._client._transport.write(b"".join(parts))
            return await expected.all()

    async def _send_request(
        self, subject: str, data: bytes, number: int, headers: dict[str, str] | None
    ) -> None:
        if not self.is_connected:
            raise BusUnavailable(f"not connected to {self.url}")
        size = len(data) + header_bytes(headers)
        if size > self.max_payload_bytes:  # the server would close the connection
            raise PayloadTooLarge(f"the message for {subject}", size, self.max_payload_bytes)
        try:
            # nats-py writes into the headers it is given: hand it a copy
            await self._client.publish(
                subject,
                data,
                reply=f"{self._inbox}.{number}",
                headers=dict(headers) if headers else None,
            )
        except (ConnectionClosedError, ConnectionDrainingError, OutboundBufferLimitError) as error:
            raise BusUnavailable(f"not connected to {self.url}: {error}") from error

    def _on_reply(self, message: Msg) -> None:
        self._note(message)
        self._replies.take(message)

    def _raise_if_lost(self, subject: str) -> None:
        if self.guard is not None:
            self.guard.on_no_responders(subject)

    def _note(self, message: Msg) -> None:
        if message.headers and self.guard is not None:
            self.guard.saw_copy(message.headers)

    # --- subscriptions -------------------------------------------------------------------------

    async def subscribe(
        self, subject: str, handler: MessageHandler, *, deliveries: bool = False
    ) -> Subscription:
        """Core subscription; the handler is synchronous and must not block.

        ``deliveries``: messages of a consumer. Their headers come from the writer, not from the
        server.
        """
        note = self._note if not deliveries else lambda _: None
        subscription = Subscription(subject, handler, self._subscriptions.discard, note)
        await subscription.attach(self._client)
        self._subscriptions.add(subscription)
        return subscription

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Call back after each reconnect; returns a function that removes the callback."""
        self._on_reconnect.add(callback)
        return lambda: self._on_reconnect.discard(callback)

    async def flush(self) -> None:
        with contextlib.suppress(Exception):  # best effort: unflushed messages are redelivered
            await self._client.flush(timeout=2)

    async def wait_connected(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        return self.is_connected

    async def close(self) -> None:
        """Flush and close. Does not drain: unread pull messages would delay it."""
        if self._closing:
            return
        self._closing = True
        if self.guard is not None:
            self.guard.close()
        self._replies.fail(BusUnavailable("the connection was closed"))
        for task in tuple(self._tasks):
            task.cancel()
        if self.is_connected:
            await self.flush()
        with contextlib.suppress(Exception):  # closing a broken connection may fail
            await self._client.close()
        self._connected.clear()

    # --- supervision ---------------------------------------------------------------------------

    async def _build_client(self, *, first: bool) -> None:
        client = MendedClient()
        began = time.monotonic()
        connecting = True

        said: list[Exception] = []  # a server that refuses says why, then disconnects: two errors

        async def on_error(error: Exception) -> None:
            said.append(error)
            await self._on_error(error)
            if connecting and is_hopeless(error, time.monotonic() - began):
                raise error  # nats-py would retry forever; after connecting nothing may raise

        def if_current(callback: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            # a client that never connected is closed too: that must not create another one
            async def call() -> None:
                if self._client is client:
                    await callback()

            return call

        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                await client.connect(
                    **self._options.client_arguments(),
                    error_cb=on_error,
                    disconnected_cb=if_current(self._on_disconnect),
                    reconnected_cb=if_current(self._on_reconnected),
                    closed_cb=if_current(self._on_closed),
                    allow_reconnect=True,
                    max_reconnect_attempts=-1,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    pending_size=16 * 1024 * 1024,
                )
        except (OSError, TimeoutError, nats.errors.Error) as error:
            with contextlib.suppress(Exception):  # a half-open client; only its sockets matter
                await client.close()
            reason = next(filter(is_refusal, [error, *said]), said[-1] if said else error)
            raise BusUnavailable(
                f"cannot connect to NATS at {self.url}: {named_error(reason)}. "
                f"{_REFUSED if is_refusal(reason) else _UNREACHABLE}"
            ) from error
        except asyncio.CancelledError:  # only this code can close the socket
            with contextlib.suppress(Exception):
                await client.close()
            raise
        connecting = False
        self._client = client
        self._inbox = client.new_inbox()
        replies = Subscription(self._inbox + ".*", self._on_reply)
        await replies.attach(client)
        if not first:
            for subscription in tuple(self._subscriptions):
                await subscription.attach(client)
        self._connected.set()
        self._watch_reader()

    async def _on_error(self, error: Exception) -> None:
        self.last_error = named_error(error)
        logger.debug("nats error", extra={"error": self.last_error})
        if match := _DENIED.search(str(error)):
            self._replies.deny(match.group(1))

    async def _on_disconnect(self) -> None:
        self._connected.clear()
        self.breaks += 1
        broken = BusUnavailable(
            f"the connection to NATS at {self.url} broke and does not come back. Start the server; "
            "the run is in its log."
        )
        if self.guard is not None:
            self.guard.close_gate()
        self._replies.fail(broken)
        if not self._closing:
            self.troubles.report(broken, CONNECTION, after_s=BREAK_S)
        if not self._closing and self._reviver is not None:
            self._spawn(self._revive())

    async def _on_reconnected(self) -> None:
        self._connected.set()
        self.troubles.over(CONNECTION)
        self.troubles.over(BusUnavailable.code)
        self._watch_reader()
        self.reconnects += 1
        self._spawn(self._look_around())

    async def _look_around(self) -> None:
        """After a reconnect: check that the log is still the same, then call the callbacks."""
        if self.guard is not None:
            await self.guard.check()
        self.raise_doubt()

    def raise_doubt(self) -> None:
        """Waiting readers may have missed messages: let them check again."""
        for callback in tuple(self._on_reconnect):
            self._spawn(_run_callback(callback))

    def _watch_reader(self) -> None:
        """Replace a client whose read loop failed: it looks connected but receives nothing."""
        client = self._client

        def ended(reader: asyncio.Task[None]) -> None:
            if reader.cancelling():
                return  # the event loop is ending, and all its tasks
            if reader is client._reading_task and client.is_connected and not self._closing:
                logger.error("the client stopped reading; it is replaced")
                self._spawn(client.close())

        if client._reading_task is not None:
            client._reading_task.add_done_callback(ended)

    async def _on_closed(self) -> None:
        self._connected.clear()
        if not self._closing:
            self._spawn(self._replace_client())

    async def _revive(self) -> None:
        """Embedded server: if it does not come back by itself, restart it."""
        assert self._reviver is not None
        while not self._closing and not await self.wait_connected(0.5):
            try:
                options = await self._reviver.revive(self._options)
            except Exception:
                logger.exception("cannot revive the embedded server")
                continue
            if options.servers != self._options.servers:
                self._options = options
                await self._client.close()  # leads to _on_closed, which builds a new client

    async def _replace_client(self) -> None:
        delay_s = 0.1
        while not self._closing:
            try:
                await self._build_client(first=False)
            except BusUnavailable as error:
                logger.warning("cannot reconnect yet", extra={"error": str(error)})
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.5))
                delay_s = min(delay_s * 2, 5.0)
            else:
                await self._on_reconnected()
                return

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run_callback(callback: Callable[[], Awaitable[None]]) -> None:
    try:
        await callback()
    except Exception:
        logger.exception("a reconnect callback failed")
