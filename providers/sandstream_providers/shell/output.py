"""What reports say of a command, and its output put together from pieces."""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from sandstream_providers.box.agent.commands.output import unfinished
from sandstream_providers.interface import OnOutput, Stream

STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
_NAMES: dict[str, Stream] = {"out": "stdout", "err": "stderr"}


class Report(msgspec.Struct, kw_only=True):
    """How a command stood when a script looked."""

    state: Literal["claimed", "running", "exited", "lost"]
    session: int
    exit_code: int | None
    killed: Literal["timeout", "memory", "cancelled", ""]
    due: bool
    """The time that the caller wanted to wait is over."""
    total: dict[Stream, int]
    """How much was said, kept or not."""
    pieces: list[tuple[Stream, int, bytes]]
    """Output from the offset that was asked for: stream, offset, bytes. There may be more."""

    @property
    def over(self) -> bool:
        return self.state in ("exited", "lost")


def parse(said: bytes) -> Report:
    facts, sizes, parts, data = said.split(b"\n", 3)
    state, session, code, why, due, *ends = facts.decode("ascii").split()
    total: dict[Stream, int] = {"stdout": 0, "stderr": 0}
    words = sizes.decode("ascii").split()
    for name, size in zip(words[::2], words[1::2], strict=True):
        stream, start = _place(name)
        total[stream] = max(total[stream], start + int(size))
    for stream, end in zip(STREAMS, ends, strict=True):
        if end != "-":
            total[stream] = int(end)
    pieces = []
    at = 0
    for part in parts.decode("ascii").split():
        name, skip, take = part.split(":")
        stream, start = _place(name)
        length = int(take)
        first = start + int(skip)
        piece = data[at : at + length][: max(0, total[stream] - first)]
        at += length
        if piece:
            pieces.append((stream, first, piece))
    pieces.sort(key=lambda piece: piece[1])
    return Report(
        state=state,  # type: ignore[arg-type]
        session=int(session),
        exit_code=None if code == "-" else int(code),
        killed="" if why == "-" else why,  # type: ignore[arg-type]
        due=due == "1",
        total=total,
        pieces=pieces,
    )


def _place(name: str) -> tuple[Stream, int]:
    stream, _, start = name.partition(".")
    return _NAMES[stream], int(start)


class Collected:
    """The output of one answer, from where its operation began; told as it comes."""

    def __init__(self, limit: int, on_output: OnOutput | None) -> None:
        self._limit = limit
        self._on_output = on_output
        self.begin: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self.seen: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        """Up to here everything that was kept has come."""
        self._head: dict[Stream, list[tuple[int, bytes]]] = {it: [] for it in STREAMS}
        self._tail: dict[Stream, deque[tuple[int, bytes]]] = {it: deque() for it in STREAMS}

    def begin_at(self, stdout: int, stderr: int) -> None:
        """Where the operation begins, if it is not the beginning of the streams."""
        self.begin = {"stdout": stdout, "stderr": stderr}
        self.seen = dict(self.begin)

    def take(self, report: Report) -> None:
        for stream, start, data in report.pieces:
            new = data[max(0, self.seen[stream] - start) :]
            if not new:
                continue
            offset = start + len(data) - len(new)
            self.seen[stream] = offset + len(new)
            self._keep(stream, offset, new)
            if self._on_output is not None:
                self._on_output(stream, offset, new)

    def _keep(self, stream: Stream, offset: int, data: bytes) -> None:
        """Drop what the box has dropped, so that endless live output does not fill the memory."""
        head = self._limit // 2
        if offset < head:
            self._head[stream].append((offset, data))
        if offset + len(data) > head:
            tail = self._tail[stream]
            tail.append((offset, data))
            while tail[0][0] + len(tail[0][1]) <= self.seen[stream] - self._limit:
                tail.popleft()

    def has_all(self, report: Report) -> bool:
        return all(self.seen[stream] >= report.total[stream] for stream in STREAMS)

    def ends(self, report: Report) -> dict[Stream, int]:
        """Up to where the answer goes: of a running command, not into the middle of a character."""
        if report.over:
            return report.total
        return {stream: self._whole_characters(stream) for stream in STREAMS}

    def _whole_characters(self, stream: Stream) -> int:
        end = self.seen[stream]
        pieces = [*self._head[stream], *self._tail[stream]][-3:]
        return end - unfinished(b"".join(data for _, data in pieces)[-3:])

    def answer(self, stream: Stream, end: int, total: int) -> bytes:
        """What is kept of a stream up to ``end``: its beginning and its newest bytes."""
        head = self._limit // 2
        tail = max(head, total - max(1, self._limit - head))
        parts = []
        for pieces, low, high in (
            (self._head[stream], 0, min(head, end)),
            (self._tail[stream], tail, end),
        ):
            for offset, data in pieces:
                first, last = max(low - offset, 0), high - offset
                if first < last:
                    parts.append(data[first:last])
        return b"".join(parts)
