"""The connection to NATS: publish with acknowledgement, requests, subscriptions; survives restarts.

Owns the nats-py client and hides its traps: an in-flight publish fails at once when the connection
breaks and is repeated under the same message id; a client that nats-py closed for good is replaced;
callbacks never raise into its read loop; a forbidden publish is an error, not a timeout. Knows
nothing of runs or actors.
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

import msgspec
import nats
import nats.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import (
    ConnectionClosedError,
    ConnectionDrainingError,
    OutboundBufferLimitError,
)

from sandstream_bus import headers as h
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import (
    BusError,
    BusUnavailable,
    NoResponders,
    PayloadTooLarge,
    PermissionDenied,
    StoreFull,
)
from sandstream_bus.faults import Trouble, is_hopeless, is_refusal
from sandstream_bus.nats_client import MendedClient
from sandstream_bus.publishing import Expect, PubAck, decode_ack, header_bytes, publish_error
from sandstream_bus.subscription import MessageHandler, Subscription

if TYPE_CHECKING:
    from sandstream_bus.connect_options import ConnectOptions, ServerReviver

logger = logging.getLogger(__name__)

ACK_TIMEOUT_S = 2.0
PUBLISH_BUDGET_S = 30.0
_CREDENTIALS = re.compile(r"(?<=://)[^/]*@|^[^/]*@")
_DENIED = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)


class Connection:
    """One connection. Whoever opened it closes it."""

    def __init__(self, options: ConnectOptions, reviver: ServerReviver | None) -> None:
        self._options = options
        self._reviver = reviver
        self._client: NatsClient = MendedClient()
        self._subscriptions: set[Subscription] = set()
        self._replies: dict[int, tuple[str, Callable[[Msg | BaseException], None]]] = {}
        self._next_reply = 0
        self._inbox = ""
        self._connected = asyncio.Event()
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_reconnect: set[Callable[[], Awaitable[None]]] = set()
        self.last_error: str = ""
        self._trouble: Trouble | None = None
        self.reconnects = 0
        self.breaks = 0
        """How often the connection was lost: counted before anything can come on the next one."""

    @classmethod
    async def open(
        cls, options: ConnectOptions, reviver: ServerReviver | None = None
    ) -> Connection:
        """Connect, or raise :class:`BusUnavailable` with what to do about it."""
        self = cls(options, reviver)
        for tries_left in (2, 1, 0):
            try:
                await self._build_client(first=True)
                break
            except BusUnavailable as error:
                # A server that refuses hangs up at once, and its reason may get lost on the way.
                if tries_left == 0 or not isinstance(error.__cause__, ConnectionResetError):
                    raise
        return self

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    @property
    def max_payload_bytes(self) -> int:
        return int(self._client.max_payload)

    @property
    def server_version(self) -> str:
        return str(self._client.connected_server_version)

    @property
    def url(self) -> str:
        """Where the server is, for messages and logs: without the credentials that it may carry."""
        return _CREDENTIALS.sub("", self._options.servers[0])

    @property
    def trouble(self) -> Trouble | None:
        """What keeps work from going on now, if anything does."""
        return self._trouble

    def report_trouble(self, error: BusError) -> None:
        """Work waits for this fault to end; whoever waits for the work may want to know."""
        if self._trouble is None or type(self._trouble.error) is not type(error):
            self._trouble = Trouble(error, time.monotonic())
            logger.warning("work cannot go on", extra={"why": str(error)})

    def trouble_over(self) -> None:
        """Something went through: work goes on."""
        self._trouble = None

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
        """Store a message; return once the server has promised to keep it.

        Repeated under the same ``msg_id`` until it is acknowledged or ``budget_s`` is over; None:
        for ever, a full store included, for what must not be lost. After a repeat, a lost
        compare-and-set may be our own earlier success: :class:`WrongSequence` leaves that to the
        log.
        """
        head = dict(headers) if headers else {}
        head[h.MSG_ID] = msg_id
        if expect is not None:
            head[h.EXPECTED_SEQUENCE] = str(expect.sequence)
            head[h.EXPECTED_SUBJECT] = expect.subject
        deadline = time.monotonic() + (float("inf") if budget_s is None else budget_s)
        crashpoint("bus.before_publish")
        while True:
            try:
                reply = await self.request(subject, data, headers=head, timeout_s=ACK_TIMEOUT_S)
                ack = decode_ack(reply.data)
            except (TimeoutError, BusUnavailable, msgspec.DecodeError) as error:
                failure: BaseException = error
            else:
                if ack.error is None:
                    crashpoint("bus.after_publish")
                    self.trouble_over()
                    return ack
                failure = publish_error(ack.error, subject)
                if isinstance(failure, StoreFull) and budget_s is None:
                    self.report_trouble(failure)
                    await asyncio.sleep(0.5)
                elif not isinstance(failure, BusUnavailable):
                    raise failure
            if time.monotonic() > deadline or self._closing:
                raise BusUnavailable(
                    f"publishing to {subject} was not acknowledged within {budget_s} s "
                    f"({self.last_error or failure!r}). Is the NATS server at {self.url} up, "
                    "with JetStream enabled?"
                ) from failure
            await self._pause_until_connected(0.05)

    async def publish_core(self, subject: str, data: bytes) -> None:
        """Send without storing. Lost if nobody listens or the connection is down; never blocks."""
        if self.is_connected:
            with contextlib.suppress(
                ConnectionClosedError, ConnectionDrainingError, OutboundBufferLimitError
            ):
                await self._client.publish(subject, data)

    def publish_now(self, subject: str, messages: Sequence[bytes]) -> None:
        """Like :meth:`publish_core`, but written to the socket before this returns, in one write.

        nats-py's own way takes two more turns of the event loop, which is what a first token waits.
        """
        if self.is_connected and self._client._transport is not None:
            parts = (b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(it), it) for it in messages)
            self._client._transport.write(b"".join(parts))

    def send_soon(self, subject: str, data: bytes) -> None:
        """Send from a message handler, which cannot wait."""
        self._spawn(self.publish_core(subject, data))

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
        """One request, one reply. TimeoutError, or BusUnavailable when the connection breaks."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Msg] = loop.create_future()

        def on_reply(reply: Msg | BaseException) -> None:
            if future.done():
                return
            if isinstance(reply, BaseException):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        number = self._expect_reply(subject, on_reply)
        timer = loop.call_later(timeout_s, on_reply, TimeoutError(f"no reply from {subject}"))
        try:
            await self._send_request(subject, data, number, headers)
            message = await future
        finally:
            timer.cancel()
            self._replies.pop(number, None)
        if not message.data and message.headers and message.headers.get(h.STATUS) == "503":
            raise NoResponders(f"nobody answers on {subject}: is JetStream enabled?")
        return message

    async def request_many(
        self, subject: str, data: bytes, *, timeout_s: float = 5.0
    ) -> tuple[list[Msg], Msg]:
        """One request, many replies, ended by an empty status message, which is returned too."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[list[Msg], Msg]] = loop.create_future()
        messages: list[Msg] = []

        def on_reply(reply: Msg | BaseException) -> None:
            if future.done():
                return
            if isinstance(reply, BaseException):
                future.set_exception(reply)
            elif not reply.data and reply.headers and h.STATUS in reply.headers:
                future.set_result((messages, reply))
            else:
                messages.append(reply)

        number = self._expect_reply(subject, on_reply)
        timer = loop.call_later(timeout_s, on_reply, TimeoutError(f"no reply from {subject}"))
        try:
            await self._send_request(subject, data, number, None)
            return await future
        finally:
            timer.cancel()
            self._replies.pop(number, None)

    async def _send_request(
        self, subject: str, data: bytes, number: int, headers: dict[str, str] | None
    ) -> None:
        if not self.is_connected:
            raise BusUnavailable(f"not connected to {self.url}")
        size = len(data) + header_bytes(headers)
        if size > self.max_payload_bytes:  # beyond it the server would hang up
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

    def _expect_reply(self, subject: str, on_reply: Callable[[Msg | BaseException], None]) -> int:
        self._next_reply += 1
        self._replies[self._next_reply] = (subject, on_reply)
        return self._next_reply

    def _on_reply(self, message: Msg) -> None:
        waiting = self._replies.get(int(message.subject.rpartition(".")[2]))
        if waiting is not None:
            waiting[1](message)

    # --- subscriptions -------------------------------------------------------------------------

    async def subscribe(self, subject: str, handler: MessageHandler) -> Subscription:
        """Core subscription; the handler is synchronous and must not block."""
        subscription = Subscription(subject, handler, self._subscriptions.discard)
        await subscription.attach(self._client)
        self._subscriptions.add(subscription)
        return subscription

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Call back after each reconnect; returns a function that takes it back."""
        self._on_reconnect.add(callback)
        return lambda: self._on_reconnect.discard(callback)

    async def flush(self) -> None:
        with contextlib.suppress(Exception):  # best effort: what was not flushed is redelivered
            await self._client.flush(timeout=2)

    async def wait_connected(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        return self.is_connected

    async def _pause_until_connected(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
        if not self.is_connected:
            await self.wait_connected(1.0)

    async def close(self) -> None:
        """Flush and close. Does not drain: unread pull messages would hold it up."""
        if self._closing:
            return
        self._closing = True
        self._fail_replies(BusUnavailable("the connection was closed"))
        for task in tuple(self._tasks):
            task.cancel()
        if self.is_connected:
            await self.flush()
        with contextlib.suppress(Exception):  # closing a broken connection may fail; it is gone
            await self._client.close()
        self._connected.clear()

    # --- supervision ---------------------------------------------------------------------------

    async def _build_client(self, *, first: bool) -> None:
        client = MendedClient()
        began = time.monotonic()
        connecting = True

        said: list[Exception] = []  # a server that refuses says why, then hangs up: two errors

        async def on_error(error: Exception) -> None:
            said.append(error)
            await self._on_error(error)
            if connecting and is_hopeless(error, time.monotonic() - began):
                raise error  # nats-py would try for ever; once it is connected nothing may raise

        def if_current(callback: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            # a client that never connected is closed too: that must not ask for yet another one
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
            with contextlib.suppress(Exception):  # half-open client; only its sockets matter
                await client.close()
            reason = next(filter(is_refusal, [error, *said]), said[-1] if said else error)
            raise BusUnavailable(
                f"cannot connect to NATS at {self.url}: {type(reason).__name__}: {reason}. "
                "Start the server, or check NATS_URL and the credentials (see `sandstream doctor`)."
            ) from error
        except asyncio.CancelledError:  # nobody else knows of its socket
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
        self.last_error = f"{type(error).__name__}: {error}"
        logger.debug("nats error", extra={"error": self.last_error})
        if match := _DENIED.search(str(error)):
            for subject, on_reply in tuple(self._replies.values()):
                if subject.lower() == match.group(1).lower():  # nats-py lowers what it reports
                    on_reply(
                        PermissionDenied(
                            f"the server forbids publishing to {subject}: "
                            "this user lacks the permission"
                        )
                    )

    async def _on_disconnect(self) -> None:
        self._connected.clear()
        self.breaks += 1
        broken = BusUnavailable(
            f"the connection to NATS at {self.url} broke and does not come back. Start the server; "
            "the run is in its log."
        )
        self._fail_replies(broken)
        if not self._closing:
            self.report_trouble(broken)
        if not self._closing and self._reviver is not None:
            self._spawn(self._revive())

    async def _on_reconnected(self) -> None:
        self._connected.set()
        self.trouble_over()
        self._watch_reader()
        self.reconnects += 1
        for callback in tuple(self._on_reconnect):
            self._spawn(_run_callback(callback))

    def _watch_reader(self) -> None:
        """An error in nats-py's read loop leaves a client that looks connected and hears nothing:
        close it, which leads to a new one.
        """
        client = self._client

        def ended(reader: asyncio.Task[None]) -> None:
            if reader.cancelling():
                return  # the event loop ends, and all tasks with it
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
        """Embedded server: if it does not come back by itself, start it again."""
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

    def _fail_replies(self, error: BusError) -> None:
        for _, on_reply in tuple(self._replies.values()):
            on_reply(error)

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run_callback(callback: Callable[[], Awaitable[None]]) -> None:
    try:
        await callback()
    except Exception:
        logger.exception("a reconnect callback failed")
