"""Waiting for a command: output as it comes, then one answer.

Each operation (run, interact) answers with the output from where it began, which is where the last
answer before it ended. Asked again it begins at the same place.
"""

from __future__ import annotations

import time

from sandstream_providers.box.agent.commands.command import Command, outcome
from sandstream_providers.box.agent.commands.output import unfinished
from sandstream_providers.box.agent.loop import Loop, Timer
from sandstream_providers.box.agent.network.connection import Connection

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from sandstream_providers.box.agent.network.connection import Frame


COALESCE_S = 0.02
EVENT_BYTES = 65536
PART_BYTES = 256 * 1024
STREAMS = ("stdout", "stderr")


class Operation:
    """Where the answer to an operation begins, and when it is due."""

    __slots__ = ("command", "due", "start")

    def __init__(self, command: Command, due: float | None) -> None:
        self.command = command
        self.start = command.cursor
        self.due = due


class Waiter:
    """One client that waits for the answer to one operation."""

    def __init__(
        self,
        loop: Loop,
        connection: Connection,
        request: int,
        operation: Operation,
        due: float | None,
        events_from: list[int] | None,
        gone: Callable[[Waiter], None],
    ) -> None:
        self._loop = loop
        self.connection = connection
        self.request = request
        self.operation = operation
        self._gone = gone
        self._sent: list[int] | None = None
        if events_from is not None:
            self._sent = [max(pair) for pair in zip(events_from, operation.start)]
        self._flush: Timer | None = None
        self._deadline: Timer | None = None
        if due is not None:
            self._deadline = loop.after(max(0.0, due - time.monotonic()), self.answer)
        self.output_came()

    def output_came(self) -> None:
        if self._sent is None:
            return
        waiting = sum(self.operation.command.said()) - sum(self._sent)
        if waiting >= EVENT_BYTES and not self.connection.congested:
            self._send_events()
        elif waiting > 0 and self._flush is None:
            self._flush = self._loop.after(COALESCE_S, self._flush_now)

    def answer(self) -> None:
        """With what there is. Everything said so far goes out as events first."""
        self.stop()
        command = self.operation.command
        if not command.over:
            command.use_files()
        if self._sent is not None:
            self.connection.send_all(self._events(self._sent, command.said()))
        end = command.said() if command.over else whole_characters(command)
        self.connection.send_all(_answer(self.request, self.operation, end, outcome(command)))
        command.cursor = end
        command.told = command.told or command.over
        self._gone(self)

    def stop(self) -> None:
        for timer in (self._flush, self._deadline):
            if timer is not None:
                timer.cancel()

    def _flush_now(self) -> None:
        self._flush = None
        if self.connection.congested:
            self._flush = self._loop.after(COALESCE_S, self._flush_now)
        else:
            self._send_events()

    def _send_events(self) -> None:
        if self._sent is None:
            return
        self.operation.command.use_files()
        end = self.operation.command.said()
        for header, payload in self._events(self._sent, end):
            self.connection.send(header, payload)
            if self.connection.congested:
                self.output_came()
                return

    def _events(self, sent: list[int], end: tuple[int, int]) -> Iterator[Frame]:
        command = self.operation.command
        for index, store in enumerate((command.stdout, command.stderr)):
            while sent[index] < end[index]:
                low = sent[index]
                high = min(low + EVENT_BYTES, end[index])
                sent[index] = high
                data = store.read(low, high)
                if data:  # else it was dropped
                    offset = low if len(data) == high - low else high - len(data)
                    header = {"id": self.request, "event": STREAMS[index], "offset": offset}
                    yield header, data


def whole_characters(command: Command) -> tuple[int, int]:
    """Up to where a running command's output can be shown: not into the middle of a character."""
    ends = []
    stores = (command.stdout, command.stderr)
    for store, end, shown in zip(stores, command.said(), command.cursor):
        end -= unfinished(store.read(max(shown, end - 3), end))
        ends.append(end)
    return ends[0], ends[1]


def _answer(
    request: int, operation: Operation, end: tuple[int, int], facts: dict[str, Any]
) -> Iterator[Frame]:
    """Made when the client takes it, but as things stand now: ``end`` and ``facts``."""
    command = operation.command
    stores = (command.stdout, command.stderr)
    said = [last - first for first, last in zip(operation.start, end)]
    if sum(said) <= PART_BYTES:
        parts = [
            store.read(first, last) for store, first, last in zip(stores, operation.start, end)
        ]
        facts["sizes"] = [len(part) for part in parts]
        facts["dropped"] = sum(said) - sum(facts["sizes"])
        yield {"id": request, "ok": facts}, b"".join(parts)
        return
    kept = 0
    for index, store in enumerate(stores):
        for low in range(operation.start[index], end[index], PART_BYTES):
            data = store.read(low, min(low + PART_BYTES, end[index]))
            kept += len(data)
            if data:
                yield {"id": request, "event": "part", "stream": STREAMS[index]}, data
    facts["sizes"] = [0, 0]
    facts["dropped"] = sum(said) - kept
    yield {"id": request, "ok": facts}, b""
