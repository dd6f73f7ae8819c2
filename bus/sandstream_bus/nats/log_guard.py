"""Detects that the log was lost: the store was emptied, replaced, or set back to an older copy.

Remembers when the stream was created and the newest event that this process has seen. Compares
them after each reconnect and on suspicion. Until then nothing is published: results of work that
the log no longer contains must not get into a log that never asked for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from sandstream_bus.errors import BusUnavailable, LogLost, PermissionDenied, TopologyError
from sandstream_bus.wire import headers as h

if TYPE_CHECKING:
    from sandstream_bus.nats.connection import Connection

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""How often to look for a missing stream."""
CHECK_S = 2.0
"""How long others wait for the check after a reconnect."""
SETTLE_S = 10.0
"""How long a new leader may take to apply its events."""
LOG = "log"
"""The key of the fault."""
_READS = "$JS.API.DIRECT.GET."
_NOT_FOUND = 10059
_NO_MESSAGE = 10037
_TRIES = 40


class LogChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the log was lost, as seen by this process."""

    what: Literal["other store", "older copy"]
    at: str
    seen: int
    """The newest sequence seen before."""
    ends: int
    """The last sequence of the log found instead."""

    @property
    def text(self) -> str:
        if self.what == "other store":
            return (
                "the log is another one than before: the NATS store was emptied or replaced. "
                "The runs of the lost log are gone; new runs can start."
            )
        return (
            f"the log was set back: it ended at {self.ends}, but event {self.seen} had been seen. "
            "The NATS store was replaced by an older copy or lost its newest events. Work "
            "continues from the older state; effects of the lost events are reported where a "
            "sandbox remembers them, and are not undone."
        )


class _Seen(NamedTuple):
    """The newest event that this process has seen."""

    sequence: int
    msg_id: str


class LogGuard:
    """Watches one stream for one process."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        self.stream = stream
        self._created = ""
        self._may_ask = True
        self.highest = 0
        self._highest_id = ""
        self.epoch = 0
        """How often the log was replaced or set back; states folded before are void."""
        self.change: LogChange | None = None
        self.lost: LogLost | None = None
        """Set while the stream is missing."""
        self.recreate: Callable[[], Awaitable[object]] | None = None
        """Creates the missing stream; set only for the owner of a private server."""
        self._passable = asyncio.Event()
        self._passable.set()
        self._checking: asyncio.Task[None] | None = None
        self._listeners: dict[object, Callable[[LogChange], Awaitable[None]]] = {}

    # --- observations ----------------------------------------------------------------------------

    def saw(self, sequence: int, msg_id: str = "") -> None:
        """An event was stored or delivered."""
        if sequence > self.highest:
            self.highest = sequence
            self._highest_id = msg_id

    def saw_copy(self, headers: dict[str, str]) -> None:
        """A copy of a stored event arrived: an answer to a read, or a live copy."""
        sequence = headers.get(h.SEQUENCE, "")
        if headers.get(h.STREAM) == self.stream and sequence.isdecimal():
            self.saw(int(sequence), headers.get(h.MSG_ID, ""))

    async def begin(self) -> None:
        """Note the current stream. A user without permission to query it gets no later warnings."""
        try:
            info = await self._info()
        except PermissionDenied:
            self._may_ask = False
            return
        if info is not None:
            self._created = str(info["created"])

    def on_change(self, listener: Callable[[LogChange], Awaitable[None]]) -> Callable[[], None]:
        """Call back, before anything is published again, if the log was replaced or set back;
        returns a function that removes the listener.
        """
        key = object()
        self._listeners[key] = listener

        def forget() -> None:
            self._listeners.pop(key, None)

        return forget

    # --- the gate --------------------------------------------------------------------------------

    def close_gate(self) -> None:
        """The connection broke: the server may return with another store."""
        self._passable.clear()

    async def admit(self, deadline: float) -> None:
        """Return when the log is known to be the one that this process works for, or when the
        deadline (on the monotonic clock) is over; then the publish itself reports the problem.

        Raises :class:`LogLost` if the stream stays missing, unless the deadline is infinite.
        """
        looks_until = time.monotonic() + 1.5 * POLL_S
        while not self._passable.is_set():
            now = time.monotonic()
            if self.lost is not None and deadline != math.inf and now > looks_until:
                raise LogLost(str(self.lost))
            if now > deadline:
                return
            try:
                async with asyncio.timeout(0.25):
                    await self._passable.wait()
            except TimeoutError:
                continue

    async def sound(self) -> None:
        """Wait until the stream exists."""
        await self._passable.wait()

    # --- checking --------------------------------------------------------------------------------

    def doubt(self) -> None:
        """On suspicion that the stream is gone or replaced: check in the background."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(self._check())

    def on_no_responders(self, subject: str) -> None:
        """A read got no responders: raise :class:`LogLost` if the log is known to be gone."""
        if not subject.startswith(_READS):
            return
        if self.lost is not None:
            raise LogLost(str(self.lost))
        self.doubt()

    def on_missing(self, stream: str) -> None:
        """The server does not know a stream: raise :class:`LogLost` if it is surely the log."""
        if stream != self.stream:
            return
        if self.lost is not None:
            raise LogLost(str(self.lost))
        self.doubt()

    async def check(self) -> None:
        """Check now; returns when the result is known, also if the stream is missing, or after
        ``CHECK_S`` if the server is slow.
        """
        self.doubt()
        assert self._checking is not None
        deadline = time.monotonic() + CHECK_S
        while not self._checking.done() and self.lost is None and time.monotonic() < deadline:
            await asyncio.wait({self._checking}, timeout=0.05)

    def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()

    async def _check(self) -> None:
        if not self._may_ask:
            self._passable.set()
            return
        try:
            while True:
                breaks = self._connection.breaks
                # noted before the request: events seen meanwhile may be newer than its answer
                newest = _Seen(self.highest, self._highest_id)
                info = await self._present()
                if info is None:
                    return  # disconnected: checked again after the next connect
                try:
                    change = await self._compared(info, newest)
                except BusUnavailable:
                    continue
                if breaks == self._connection.breaks:
                    break  # otherwise it may be another server by now
            if change is not None:
                self._passable.clear()
                await self._apply(change)
            self._created = str(info["created"])
            must_look = self.lost is not None or change is not None
            self.lost = None
            self._passable.set()
            self._connection.troubles.over(LOG)
            if must_look:
                self._connection.raise_doubt()
        except Exception:
            logger.exception("the check of the log failed")
            self._passable.set()

    async def _present(self) -> dict[str, Any] | None:
        """The stream's info, once the stream exists; None if the connection breaks meanwhile."""
        while self._connection.is_connected:
            try:
                info = await self._info()
            except BusUnavailable:
                await asyncio.sleep(0.1)
                continue
            if info is not None:
                return info
            if self.lost is None:
                self._passable.clear()
                self.lost = LogLost(
                    f"the stream {self.stream} is gone: the NATS store at {self._connection.url} "
                    "was emptied or replaced. Restore it from a backup, or run `sandstream setup` "
                    "to start with an empty log."
                )
                self._connection.troubles.report(self.lost, LOG)
                self._connection.raise_doubt()
            if self.recreate is not None:
                await self.recreate()
            else:
                await asyncio.sleep(POLL_S)
        return None

    async def _compared(self, info: dict[str, Any], newest: _Seen) -> LogChange | None:
        ends = int(info["state"]["last_seq"])
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if self._created and str(info["created"]) != self._created:
            return LogChange(what="other store", at=now, seen=newest.sequence, ends=ends)
        if ends < newest.sequence and (info.get("cluster") or {}).get("replicas"):
            ends = await self._settled_end(ends, newest.sequence)
        if ends < newest.sequence or not await self._holds(newest):
            return LogChange(what="older copy", at=now, seen=newest.sequence, ends=ends)
        return None

    async def _settled_end(self, ends: int, wanted: int) -> int:
        """The end of a replicated stream. A new leader has all events, but may not yet count those
        that it has not applied.
        """
        deadline = time.monotonic() + SETTLE_S
        while ends < wanted and time.monotonic() < deadline:
            await asyncio.sleep(0.25)
            info = await self._info()
            if info is not None:
                ends = int(info["state"]["last_seq"])
        return ends

    async def _holds(self, newest: _Seen) -> bool:
        """Is the newest event seen still there? Others may have written to an older copy."""
        if not newest.sequence or not newest.msg_id:
            return True
        try:
            found = await self.message_at(newest.sequence)
        except PermissionDenied:  # an outside user may follow without reading
            return True
        return found is None or found.msg_id in ("", newest.msg_id)

    async def _apply(self, change: LogChange) -> None:
        self.epoch += 1
        self.change = change
        self.highest, self._highest_id = change.ends, ""
        logger.error("%s", change.text, extra={"stream": self.stream})
        for listener in tuple(self._listeners.values()):
            await self._tell(listener, change)

    async def _tell(
        self, listener: Callable[[LogChange], Awaitable[None]], change: LogChange
    ) -> None:
        """Nothing is published until every listener has dropped work that the log lacks."""
        while True:
            try:
                await listener(change)
            except BusUnavailable as error:  # the connection broke again
                logger.warning("recovery after a lost log waits", extra={"why": str(error)})
                await asyncio.sleep(0.5)
                await self._connection.wait_connected(POLL_S)
            except Exception:  # the other listeners must still be called
                logger.exception("recovery after a lost log failed")
                return
            else:
                return

    # --- requests --------------------------------------------------------------------------------

    async def message_at(self, sequence: int) -> StoredAt | None:
        """The message at a sequence, according to the stream's leader; None if there is none."""
        answer = await self._api(f"STREAM.MSG.GET.{self.stream}", {"seq": sequence}, wait_s=1.0)
        if error := answer.get("error"):
            if error.get("err_code") == _NO_MESSAGE:
                return None
            raise BusUnavailable(f"STREAM.MSG.GET.{self.stream}: {error.get('description')}")
        return msgspec.convert(answer["message"], type=StoredAt)

    async def _info(self) -> dict[str, Any] | None:
        answer = await self._api(f"STREAM.INFO.{self.stream}", {})
        error = answer.get("error")
        if error is None:
            return answer
        if error.get("err_code") == _NOT_FOUND:
            return None
        raise TopologyError(f"STREAM.INFO.{self.stream}: {error.get('description')}")

    async def _api(self, call: str, body: dict[str, Any], *, wait_s: float = 0.0) -> dict[str, Any]:
        """One API call; ``wait_s``: how long each try waits for a broken connection."""
        payload = msgspec.json.encode(body) if body else b""
        failure: BaseException | None = None
        for _ in range(_TRIES):
            try:
                reply = await self._connection.request(f"$JS.API.{call}", payload)
            except (TimeoutError, BusUnavailable) as error:
                failure = error
            else:
                answer: dict[str, Any] = msgspec.json.decode(reply.data)
                if (answer.get("error") or {}).get("code") != 503:
                    return answer
            await asyncio.sleep(0.1)
            if not await self._connection.wait_connected(wait_s) and not wait_s:
                break
        raise BusUnavailable(f"JetStream does not answer ({call})") from failure


class StoredAt(msgspec.Struct):
    """A stored message as the leader returns it; ``hdrs`` is base64."""

    subject: str
    seq: int
    time: str
    hdrs: bytes = b""

    @property
    def msg_id(self) -> str:
        for line in self.hdrs.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name == b"Nats-Msg-Id":
                return value.strip().decode(errors="replace")
        return ""

    @property
    def time_ns(self) -> int:
        return nanoseconds(self.time)


def nanoseconds(time: str) -> int:
    """An RFC 3339 time in UTC, as the server writes it, in nanoseconds since the epoch."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)
