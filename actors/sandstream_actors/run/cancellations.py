"""Work in progress that a cancel request must stop, whichever replica gets the request first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.nats.live_copies import stored_copy
from sandstream_bus.nats.subscription import CoreMessage
from sandstream_bus.wire.messages import CancelRequested, Claim
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.state import RunState

_REMEMBERED = 1000


_TAG = CancelRequested.__struct_config__.tag
_decode = msgspec.json.Decoder(CancelRequested | Claim).decode
"""A union of two types, so that a message without a type is neither: for a single type, the type
may be omitted.
"""


class RunCancelled(Exception):
    """The run was cancelled while work for it was in progress."""


T = TypeVar("T")


class Cancellations:
    """The tasks of runs in this process. A cancel request that arrives just before its task is not
    missed.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._tasks: defaultdict[RunId, set[asyncio.Task[Any]]] = defaultdict(set)
        self._lately: OrderedDict[RunId, None] = OrderedDict()
        self._epoch = bus.log.epoch

    async def start(self) -> None:
        """Listen to all cancel requests as they are stored."""
        self._subscription = await self._bus.connection.subscribe(
            self._bus.subjects.live("cancel"), self._on_request
        )

    async def stop(self) -> None:
        await self._subscription.close()

    @contextmanager
    def watching(self, run: RunId, task: asyncio.Task[Any]) -> Iterator[None]:
        """Cancel the task if its run is cancelled meanwhile, or was cancelled a moment ago."""
        self._tasks[run].add(task)
        if self._epoch != self._bus.log.epoch:  # that log was lost, and its cancel requests with it
            self._epoch = self._bus.log.epoch
            self._lately.clear()
        if run in self._lately:
            task.cancel()
        try:
            yield
        finally:
            self._tasks[run].discard(task)
            if not self._tasks[run]:
                del self._tasks[run]

    async def guard(self, run: RunId, work: Coroutine[Any, Any, T]) -> T:
        """Do the work. Raises :class:`RunCancelled` if the run, and with it the work, was
        cancelled.

        Raises ``CancelledError`` if this task itself is cancelled, or if the work raised it.
        """
        task = asyncio.ensure_future(work)
        try:
            with self.watching(run, task):
                return await task
        except asyncio.CancelledError:
            if is_being_cancelled() or not task.cancelling():
                raise
            raise RunCancelled(run) from None

    def forget(self, run: RunId) -> None:
        """The log contains no cancel request: the message that arrived here was not valid."""
        self._lately.pop(run, None)

    async def recheck(self, run: RunId) -> None:
        """A run that was cancelled a moment ago may have been reopened: the log decides."""
        if run not in self._lately:
            return
        if RunState.of(run, await self._bus.log.read(run)).cancel is None:
            self.forget(run)

    def is_watching(self, run: RunId) -> bool:
        """Does a task run for it now?"""
        return run in self._tasks

    def stop_run(self, run: RunId) -> None:
        """Cancel the tasks that run for it now."""
        for task in tuple(self._tasks.get(run, ())):
            task.cancel()

    def _on_request(self, message: CoreMessage) -> None:
        stored = stored_copy(message, self._bus.subjects, self._bus.topology.log)
        if stored is not None:
            self.take(self._bus.subjects.parse_run(stored.subject).run, stored.data)

    def take(self, run: RunId, request: bytes) -> None:
        """Handle a possible cancel request. One for a later time stops nothing now. An invalid one
        stops nothing at all, because the subject may carry any message.
        """
        try:
            message = _decode(request)
        except NOT_JSON:
            return
        if isinstance(message, Claim):  # one with a long reason, which the log has elsewhere
            if message.of != _TAG:
                return
        elif message.mode == "after_turn":
            return
        self._lately[run] = None
        while len(self._lately) > _REMEMBERED:
            self._lately.popitem(last=False)
        self.stop_run(run)


def is_being_cancelled() -> bool:
    """Is the running task itself being cancelled?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
