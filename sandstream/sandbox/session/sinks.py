"""Destinations for the events of sandbox sessions: a function, a file, the workspace, HTTP."""

from __future__ import annotations

import abc
import asyncio
import http.client
import inspect
import io
import logging
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, runtime_checkable
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from sandstream_bus.wire.error_text import error_text

from sandstream.sandbox.errors import WorkspaceReadNotFoundError
from sandstream.sandbox.session.events import (
    EventPayloadPolicy,
    SandboxSessionEvent,
    event_to_json_line,
)
from sandstream.sandbox.session.utils import append_line

if TYPE_CHECKING:
    from sandstream.sandbox.session.base_sandbox_session import BaseSandboxSession

logger = logging.getLogger(__name__)

DeliveryMode = Literal["sync", "async", "best_effort"]
"""``sync``: the operation waits for the sink. ``async``: it does not wait, unless the sink may
raise. ``best_effort``: it never waits, and never gets the sink's failures.
"""
OnErrorPolicy = Literal["raise", "log", "ignore"]


class EventSink(abc.ABC):
    """Receives events from ``Instrumentation``.

    Example:
        class Counter(EventSink):
            count = 0

            async def handle(self, event: SandboxSessionEvent) -> None:
                self.count += 1


        client = UnixLocalSandboxClient(instrumentation=Instrumentation(sinks=[Counter()]))
    """

    name: str | None = None
    """The sink's name in logs; ``None`` is the name of its class."""
    mode: DeliveryMode = "sync"
    """Whether operations wait for the sink."""
    on_error: OnErrorPolicy = "raise"
    """What a failure of the sink does: fail the operation, be logged, or nothing."""
    payload_policy: EventPayloadPolicy | None = None
    """The data that this sink may get; ``None`` is as the instrumentation says."""

    @abc.abstractmethod
    async def handle(self, event: SandboxSessionEvent) -> None:
        """Take an event.

        Args:
            event: The event.
        """


@runtime_checkable
class SandboxSessionBoundSink(Protocol):
    """A sink that also needs the session. Its own use of the session creates no events."""

    def bind(self, session: BaseSandboxSession) -> None: ...


class _BoundSessions:
    """The sessions of one sink. It keeps only the newest one alive."""

    def __init__(self) -> None:
        self._by_id: weakref.WeakValueDictionary[uuid.UUID, BaseSandboxSession] = (
            weakref.WeakValueDictionary()
        )
        self._newest: BaseSandboxSession | None = None

    def add(self, session: BaseSandboxSession) -> None:
        self._by_id[session.state.session_id] = session
        self._newest = session

    def of(self, event: SandboxSessionEvent) -> BaseSandboxSession | None:
        return self._by_id.get(event.session_id, self._newest)


class CallbackSink(EventSink):
    """Calls ``callback(event, session)``, which may be a coroutine function.

    Args:
        callback: Called with each event and its session.
        mode: Whether operations wait for the callback.
        on_error: What an exception of the callback does: fail the operation, be logged, or nothing.
        payload_policy: The data that the callback may get; ``None`` is as the instrumentation says.
        name: The sink's name in logs; ``None`` is the name of its class.

    Example:
        sink = CallbackSink(lambda event, session: print(event.op, event.phase))
        client = UnixLocalSandboxClient(instrumentation=Instrumentation(sinks=[sink]))
    """

    def __init__(
        self,
        callback: Callable[[SandboxSessionEvent, BaseSandboxSession], object],
        *,
        mode: DeliveryMode = "sync",
        on_error: OnErrorPolicy = "raise",
        payload_policy: EventPayloadPolicy | None = None,
        name: str | None = None,
    ) -> None:
        self._callback = callback
        self._sessions = _BoundSessions()
        self.mode = mode
        self.on_error = on_error
        self.payload_policy = payload_policy
        self.name = name

    def bind(self, session: BaseSandboxSession) -> None:
        """Give the sink a session whose events it receives.

        Args:
            session: The session.
        """
        self._sessions.add(session)

    async def handle(self, event: SandboxSessionEvent) -> None:
        session = self._sessions.of(event)
        if session is None:
            raise RuntimeError(
                "CallbackSink has no session: give it to a sandbox client in "
                "instrumentation=Instrumentation(sinks=[...]), or call bind(session)"
            )
        answer = self._callback(event, session)
        if inspect.isawaitable(answer):
            await answer


class JsonlOutboxSink(EventSink):
    """Appends events to a JSONL file on this host. Several processes may share the file.

    Args:
        path: The file. It is created with the first event.
        mode: Whether operations wait until the line is written.
        on_error: What a failed write does: fail the operation, be logged, or nothing.
        payload_policy: The data that the file may contain; ``None`` is as the instrumentation says.
    """

    def __init__(
        self,
        path: Path,
        *,
        mode: DeliveryMode = "best_effort",
        on_error: OnErrorPolicy = "log",
        payload_policy: EventPayloadPolicy | None = None,
    ) -> None:
        self.path = path
        self.mode = mode
        self.on_error = on_error
        self.payload_policy = payload_policy

    async def handle(self, event: SandboxSessionEvent) -> None:
        await asyncio.to_thread(append_line, self.path, event_to_json_line(event))


@dataclass
class _Outbox:
    """The file in one session's workspace, and the lines waiting to be written."""

    path: Path
    pending: bytearray = field(default_factory=bytearray)
    seen: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class WorkspaceJsonlSink(EventSink):
    """Appends events to a JSONL file in the session's own workspace.

    Every program in the sandbox can change that file, so it is not evidence; use
    ``JsonlOutboxSink`` or ``HttpProxySink`` for that. Lines are buffered while the sandbox is not
    running. Stopping, shutting down and saving the workspace write them sooner than
    ``flush_every``. The whole file is rewritten each time.

    Args:
        workspace_relpath: The file, relative to the root. ``{session_id}`` and ``{session_id_hex}``
            in it are replaced.
        ephemeral: Whether the file is excluded from snapshots.
        mode: Whether operations wait until the file is written.
        on_error: What a failed write does: fail the operation, be logged, or nothing.
        payload_policy: The data that the file may contain; ``None`` is as the instrumentation says.
        flush_every: How many events are buffered before the file is written.
        max_bytes: The limit of the file and of the buffer; ``None`` removes it. Once it would be
            exceeded, the sink reports one error, leaves the file unchanged, and accepts no more
            events, not even for sessions that are bound later.

    Raises:
        ValueError: ``max_bytes`` is not positive.
    """

    def __init__(
        self,
        *,
        workspace_relpath: Path = Path("logs/events-{session_id}.jsonl"),
        ephemeral: bool = False,
        mode: DeliveryMode = "best_effort",
        on_error: OnErrorPolicy = "log",
        payload_policy: EventPayloadPolicy | None = None,
        flush_every: int = 1,
        max_bytes: int | None = None,
    ) -> None:
        if max_bytes is not None and max_bytes <= 0:
            raise ValueError("max_bytes must be positive")
        self.workspace_relpath = workspace_relpath
        self.ephemeral = ephemeral
        self.mode = mode
        self.on_error = on_error
        self.payload_policy = payload_policy
        self.max_bytes = max_bytes
        self._flush_every = max(1, int(flush_every))
        self._is_full = False
        self._sessions = _BoundSessions()
        self._outboxes: weakref.WeakKeyDictionary[BaseSandboxSession, _Outbox] = (
            weakref.WeakKeyDictionary()
        )

    def bind(self, session: BaseSandboxSession) -> None:
        """Give the sink a session into whose workspace it writes.

        Args:
            session: The session.
        """
        path = self._path_for(session.state.session_id)
        self._sessions.add(session)
        self._outboxes.setdefault(session, _Outbox(path))
        if self.ephemeral:
            session.register_persist_workspace_skip_path(path)

    def _path_for(self, session_id: uuid.UUID) -> Path:
        template = str(self.workspace_relpath)
        try:
            return Path(template.format(session_id=session_id, session_id_hex=session_id.hex))
        except (LookupError, ValueError):  # unknown braces are part of the name
            return self.workspace_relpath

    async def handle(self, event: SandboxSessionEvent) -> None:
        session = self._sessions.of(event)
        if session is None:
            return
        outbox = self._outboxes[session]
        async with outbox.lock:
            if self._is_full:
                return
            self._keep(outbox, event)
            if self._is_due(outbox, event) and await _is_running(session):
                await self._write_out(session, outbox)

    def _keep(self, outbox: _Outbox, event: SandboxSessionEvent) -> None:
        line = event_to_json_line(event).encode()
        if self.max_bytes is not None and len(outbox.pending) + len(line) > self.max_bytes:
            self._stop_full(outbox)
        outbox.pending += line
        outbox.seen += 1

    def _is_due(self, outbox: _Outbox, event: SandboxSessionEvent) -> bool:
        if outbox.seen % self._flush_every == 0 or event.op == "stop":
            return True
        return event.op in ("persist_workspace", "shutdown") and event.phase == "start"

    async def _write_out(self, session: BaseSandboxSession, outbox: _Outbox) -> None:
        existing = await self._existing(session, outbox.path)
        content = existing + bytes(outbox.pending)
        if self.max_bytes is not None and len(content) > self.max_bytes:
            self._stop_full(outbox)
        await session.write(outbox.path, io.BytesIO(content))
        outbox.pending.clear()

    async def _existing(self, session: BaseSandboxSession, path: Path) -> bytes:
        try:
            if self.max_bytes is not None:
                return await session.read_bounded(path, max_bytes=self.max_bytes + 1)
            with await session.read(path) as file:
                content: bytes | str = file.read()
        except (FileNotFoundError, WorkspaceReadNotFoundError):
            return b""
        return content.encode() if isinstance(content, str) else content

    def _stop_full(self, outbox: _Outbox) -> NoReturn:
        self._is_full = True
        outbox.pending.clear()
        raise RuntimeError(
            f"WorkspaceJsonlSink: {outbox.path} would exceed max_bytes={self.max_bytes}; it takes "
            f"no more events. Use a new sink with another path or a larger max_bytes, or "
            f"JsonlOutboxSink or HttpProxySink"
        )


async def _is_running(session: BaseSandboxSession) -> bool:
    try:
        return await session.running()
    except Exception:
        logger.debug("could not determine whether the sandbox runs", exc_info=True)
        return False


class HttpProxySink(EventSink):
    """Posts each event as JSON. Events that cannot be posted go to the spool file, if any.

    Args:
        endpoint: The URL that events are posted to.
        headers: HTTP headers of each request, for example ``Authorization``.
        timeout_s: How many seconds a request may take.
        spool_path: A JSONL file for events that could not be posted; ``None`` drops them.
        mode: Whether operations wait for the answer.
        on_error: What a failed request does: fail the operation, be logged, or nothing.
        payload_policy: The data that is posted; ``None`` is as the instrumentation says.

    Example:
        sink = HttpProxySink("https://events.example.com", spool_path=Path("events.jsonl"))
        client = UnixLocalSandboxClient(instrumentation=Instrumentation(sinks=[sink]))
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = 5.0,
        spool_path: Path | None = None,
        mode: DeliveryMode = "best_effort",
        on_error: OnErrorPolicy = "log",
        payload_policy: EventPayloadPolicy | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.headers = dict(headers or {})
        self.timeout_s = timeout_s
        self.spool_path = spool_path
        self.mode = mode
        self.on_error = on_error
        self.payload_policy = payload_policy

    async def handle(self, event: SandboxSessionEvent) -> None:
        await asyncio.to_thread(self._post_or_spool, event)

    def _post_or_spool(self, event: SandboxSessionEvent) -> None:
        request = Request(
            self.endpoint,
            data=event.model_dump_json().encode(),
            headers={"content-type": "application/json", **self.headers},
            method="POST",
        )
        try:
            with urlopen(request, timeout=self.timeout_s) as response:
                response.read(1)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # an HTTP error is also the response, with its connection
            self._spool(event)
            raise RuntimeError(f"http proxy sink POST failed: {error_text(error)}") from error

    def _spool(self, event: SandboxSessionEvent) -> None:
        if self.spool_path is None:
            return
        try:
            append_line(self.spool_path, event_to_json_line(event))
        except OSError:
            # The failed POST is raised; this error must not hide it.
            logger.warning("could not write the event spool %s", self.spool_path, exc_info=True)


class ChainedSink(EventSink):
    """Sinks that get each event one after the other, regardless of their modes.

    Args:
        sinks: The sinks, in the order in which they get an event.
    """

    def __init__(self, *sinks: EventSink) -> None:
        self.sinks = list(sinks)

    async def handle(self, event: SandboxSessionEvent) -> None:
        """Without ``Instrumentation`` there are no policies, and the first failure stops it.

        Args:
            event: The event, for every sink.
        """
        for sink in self.sinks:
            await sink.handle(event)


def single_sinks(sink: EventSink) -> Iterator[EventSink]:
    """The sink itself, or the sinks of a chain."""
    if isinstance(sink, ChainedSink):
        for inner in sink.sinks:
            yield from single_sinks(inner)
    else:
        yield sink
