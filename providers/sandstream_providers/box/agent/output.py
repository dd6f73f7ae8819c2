"""A command's output stream, kept in a file of bounded size.

The first half of the file holds the beginning of the stream. The second half is a ring that holds
the newest bytes. So a stream that fits is kept whole, and one that does not loses its middle.
"""

from __future__ import annotations

import os


class OutputStore:
    """``total`` counts all that was said, kept or not."""

    def __init__(
        self, folder: int, path: str, limit: int, total: int = 0, readable: int | None = None
    ) -> None:
        self._folder = folder
        self._path = path
        self._head = limit // 2
        self._ring = max(1, limit - self._head)
        self._fd: int | None = None
        self.total = total
        self.readable: int | None = readable
        """Nothing from here on is kept: the disk was full. None: no such fault."""

    def write(self, data: bytes) -> None:
        position = self.total
        self.total += len(data)
        if self.readable is not None:
            return
        try:
            self._keep(position, data)
        except OSError:
            self.readable = position  # the command must go on; the rest counts as dropped

    def _keep(self, position: int, data: bytes) -> None:
        if self._fd is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o600, dir_fd=self._folder)
        view = memoryview(data)
        while view:
            if position < self._head:
                place, room = position, self._head - position
            else:
                around = (position - self._head) % self._ring
                place, room = self._head + around, self._ring - around
            count = os.pwrite(self._fd, view[:room], place)
            view = view[count:]
            position += count

    def read(self, start: int, end: int) -> bytes:
        """What is kept of this range."""
        if end <= start:
            return b""
        kept = [(0, min(self._head, self.total))]
        kept.append((max(self._head, self.total - self._ring), self.total))
        last = self.total if self.readable is None else self.readable
        parts = []
        fd = self._fd
        try:
            if fd is None:
                fd = os.open(
                    self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._folder
                )
            for low, high in kept:
                parts += self._read_kept(fd, max(low, start), min(high, end, last))
        except FileNotFoundError:
            return b""  # nothing could be kept, or the record was pruned
        finally:
            if fd is not None and fd != self._fd:
                os.close(fd)
        return b"".join(parts)

    def _read_kept(self, fd: int, position: int, end: int) -> list[bytes]:
        parts = []
        while position < end:
            if position < self._head:
                place, room = position, self._head - position
            else:
                around = (position - self._head) % self._ring
                place, room = self._head + around, self._ring - around
            part = os.pread(fd, min(room, end - position), place)
            if not part:
                break
            parts.append(part)
            position += len(part)
        return parts

    def close(self) -> None:
        """Let go of the descriptor; reading opens the file again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
