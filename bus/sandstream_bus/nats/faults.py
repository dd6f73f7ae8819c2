"""Faults of the connection and the store: which ones to wait for, and their errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from sandstream_bus.errors import BusError, LogLost, StoreUnwritable

if TYPE_CHECKING:
    from sandstream_bus.nats.connection import Connection

logger = logging.getLogger(__name__)

REFUSED_PATIENCE_S = 2.0
"""How long a first connection waits for a server that is not up yet."""
CONNECTION = "connection"
"""The key of troubles that end with a reconnect."""
BREAK_S = 1.0
"""Shorter outages are not reported."""


class Trouble(NamedTuple):
    """An external fault that this process waits for."""

    error: BusError
    since: float
    """The start, on the monotonic clock."""


class Troubles:
    """The faults that this process currently waits for. Logs the start and the end of each."""

    def __init__(self) -> None:
        self._known: dict[str, Trouble] = {}
        self._told: set[str] = set()
        self._listeners: set[Callable[[BusError | None], None]] = set()

    @property
    def first(self) -> Trouble | None:
        return next(iter(self._known.values()), None)

    def report(self, error: BusError, key: str = "", *, after_s: float = 0.0) -> None:
        """Note that work waits for this fault to end. ``key`` identifies the fault; a fault that
        ends within ``after_s`` is not reported.
        """
        key = key or error.code
        if key in self._known:
            return
        trouble = self._known[key] = Trouble(error, time.monotonic())
        if after_s:
            asyncio.get_running_loop().call_later(after_s, self._tell_of, key, trouble)
        else:
            self._tell_of(key, trouble)

    def over(self, key: str = "") -> None:
        """The fault with this key ended; without a key, all faults."""
        for name in [key] if key else list(self._known):
            ended = self._known.pop(name, None)
            if ended is not None and name in self._told:
                self._told.discard(name)
                lasted_s = round(time.monotonic() - ended.since, 1)
                logger.warning(
                    "work continues after %s s", lasted_s, extra={"code": ended.error.code}
                )
                if not self._told:
                    self._tell(None)

    def _tell_of(self, key: str, trouble: Trouble) -> None:
        if self._known.get(key) is trouble:
            self._told.add(key)
            logger.warning("work waits: %s", trouble.error, extra={"code": trouble.error.code})
            self._tell(trouble.error)

    def listen(self, listener: Callable[[BusError | None], None]) -> Callable[[], None]:
        """Call the listener with each new fault, and with None when the last one ended; returns a
        function that removes the listener.
        """
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _tell(self, error: BusError | None) -> None:
        for listener in tuple(self._listeners):
            listener(error)


def is_refusal(error: Exception) -> bool:
    text = str(error).lower()
    return "authorization" in text or "authentication" in text


def is_hopeless(error: Exception, after_s: float) -> bool:
    """Is it pointless to try to connect again?"""
    if is_refusal(error):
        return True
    refused = isinstance(error, OSError) and not isinstance(error, TimeoutError)
    return refused and after_s > REFUSED_PATIENCE_S


def store_key(stream: str) -> str:
    """The key of a fault of one stream's storage."""
    return f"store:{stream}"


async def why_unstored(connection: Connection, subject: str) -> tuple[str, BusError] | None:
    """Why the server does not acknowledge a publish, with the fault's key; None: unknown.

    nats-server sends no reply at all if it cannot write to its disk. So the cause is found with
    requests that need no disk: does the stream exist, and does it have a leader and a majority?
    """
    names = await _ask(connection, "STREAM.NAMES", {"subject": subject})
    if names is None:
        return None
    found: list[str] = names.get("streams") or []
    if not found:
        text = (
            f"no stream of the NATS server at {connection.url} takes messages for {subject}: the "
            "store was emptied or replaced. Restore it from a backup, or run `sandstream setup`."
        )
        return "log", LogLost(text)
    info = await _ask(connection, f"STREAM.INFO.{found[0]}", {})
    if info is None or not _has_majority(info):
        return None
    return store_key(found[0]), unwritable(connection, found[0])


def unwritable(connection: Connection, stream: str) -> StoreUnwritable:
    """The error for a stream whose writes are not acknowledged."""
    restart = (
        "the private server restarts by itself then"
        if connection.is_private
        else "restart nats-server then: it does not write again by itself"
    )
    return StoreUnwritable(
        f"the NATS server at {connection.url} answers but cannot store messages of stream "
        f"{stream}: no space left on its disk, or the disk fails (its log and /healthz say which). "
        f"Free disk space; {restart}."
    )


def _has_majority(info: dict[str, Any]) -> bool:
    """Does the stream have a leader that reaches most of its replicas?"""
    cluster: dict[str, Any] = info.get("cluster") or {}
    replicas: list[dict[str, Any]] = cluster.get("replicas") or []
    if not replicas:
        return bool(cluster.get("leader", True))
    well = 1 + sum(bool(it.get("current")) and not it.get("offline") for it in replicas)
    return bool(cluster.get("leader")) and 2 * well > len(replicas) + 1


async def _ask(connection: Connection, call: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """One JetStream API call without retries; None without a usable answer."""
    try:
        payload = msgspec.json.encode(body) if body else b""
        reply = await connection.request(f"$JS.API.{call}", payload, timeout_s=2.0)
        answer: dict[str, Any] = msgspec.json.decode(reply.data)
    except (TimeoutError, BusError, msgspec.DecodeError):
        return None
    return None if "error" in answer else answer
