"""Replies to requests: which are awaited, and when a request has all of them.

The connection sends requests and passes each message of its inbox to :class:`Replies`. An
*expected* reply is a context; replies that arrive after its end are dropped.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from sandstream_bus.errors import BusError, PermissionDenied
from sandstream_bus.wire import headers as h

if TYPE_CHECKING:
    from nats.aio.msg import Msg

T = TypeVar("T")

INBOX = "_INBOX"
SERVICE_INBOX = "_R_"
"""Where answers to requests from another account go: the server passes them on."""
OUTSIDE_API = "_API"
"""The name to which the server maps ``$JS.API`` for outside users (see roles.py). Each account has
its own API, which would answer too.
"""


class Replies:
    """All replies that one connection waits for, by the number at the end of their subject."""

    def __init__(self) -> None:
        self._expected: dict[int, Expected[Msg] | Expected[list[Msg]]] = {}
        self._last_number = 0

    def add(self, expected: Expected[Msg] | Expected[list[Msg]]) -> int:
        self._last_number += 1
        self._expected[self._last_number] = expected
        return self._last_number

    def remove(self, number: int) -> None:
        self._expected.pop(number, None)

    def take(self, message: Msg) -> None:
        """Handle an incoming message. A message that is no longer awaited is dropped."""
        expected = self._expected.get(int(message.subject.rpartition(".")[2]))
        if expected is not None:
            expected.take(message)

    def fail(self, error: BusError) -> None:
        """Fail all awaited replies: the connection is gone."""
        for expected in tuple(self._expected.values()):
            expected.fail(error)

    def deny(self, subject: str) -> None:
        """Handle a forbidden subject, which nats-py reports in lower case. The server reports a
        mapped subject by its new name.
        """
        for expected in tuple(self._expected.values()):
            renamed = expected.subject.replace("$JS.API.", f"{OUTSIDE_API}.", 1)
            if subject.lower() in (expected.subject.lower(), renamed.lower()):
                text = f"the server forbids publishing to {expected.subject}"
                expected.fail(PermissionDenied(f"{text}: this user lacks the permission"))


class Expected(Generic[T]):
    """The replies to one request. Raises TimeoutError if no message arrives for ``timeout_s``."""

    def __init__(self, replies: Replies, subject: str, timeout_s: float) -> None:
        self.subject = subject
        self._replies = replies
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[T] = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(timeout_s, self._check_silence)
        self.number = replies.add(self)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self._replies.remove(self.number)

    async def all(self) -> T:
        return await self._result

    def take(self, message: Msg) -> None:
        self._heard_at = self._loop.time()
        if not self._result.done():
            self._add(message)

    def _add(self, message: Msg) -> None:
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        if not self._result.done():
            self._result.set_exception(error)

    def _check_silence(self) -> None:
        due = self._heard_at + self._timeout_s
        if self._loop.time() >= due:
            self.fail(TimeoutError(f"no reply from {self.subject}"))
        else:
            self._timer = self._loop.call_at(due, self._check_silence)


class OneReply(Expected["Msg"]):
    """The only reply."""

    def _add(self, message: Msg) -> None:
        self._result.set_result(message)


class RepliesToEnd(Expected["list[Msg]"]):
    """Many replies; the last one is an empty message with a status."""

    def __init__(self, replies: Replies, subject: str, timeout_s: float) -> None:
        super().__init__(replies, subject, timeout_s)
        self._found: list[Msg] = []

    def _add(self, message: Msg) -> None:
        self._found.append(message)
        if not message.data and message.headers and h.STATUS in message.headers:
            self._result.set_result(self._found)


class SoManyReplies(Expected["list[Msg]"]):
    """One reply to each of several requests, in any order."""

    def __init__(self, replies: Replies, subject: str, timeout_s: float, count: int) -> None:
        super().__init__(replies, subject, timeout_s)
        self._count = count
        self._found: list[Msg] = []

    def _add(self, message: Msg) -> None:
        self._found.append(message)
        if len(self._found) == self._count:
            self._result.set_result(self._found)
