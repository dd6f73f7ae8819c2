"""A command's output stream, kept in a file of bounded size.

The first half of the file holds the beginning of the stream. The second half is a ring that holds
the newest bytes. So a stream that fits is kept whole, and one that does not loses its middle.
The little that short commands say never gets into a file: it is kept in memory.
"""

from __future__ import annotations

import os

IN_MEMORY = 4096


def unfinished(tail: bytes) -> int:
    """How many bytes at the end of an output begin a UTF-8 character that is not complete yet.

    ``tail``: its last three bytes. An incomplete character has no more.
    """
    for count in range(1, len(tail) + 1):
        byte = tail[-count]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            return count if count < needs else 0
    return 0


class OutputStore:
    """``total`` counts all that was said, kept or not."""

    def __init__(self, folder: int, path: str, limit: int) -> None:
        self._folder = folder
        self._path = path
        self._in_memory = min(IN_MEMORY, limit)
        self._memory: bytearray | None = bytearray()
        self._head = limit // 2
        self._ring = max(1, limit - self._head)
        self._fd: int | None = None
        self.total = 0
        self.readable: int | None = None
        """Nothing from here on is kept: the disk was full. None: no such fault."""

    def write(self, data: bytes) -> None:
        position = self.total
        self.total += len(data)
        if self._memory is not None and self.total <= self._in_memory:
            self._memory += data
            return
        self.use_file()
        self._keep(position, data)

    def use_file(self) -> None:
        """Keep the output in the file from now on, so that it outlives this process."""
        if self._memory is not None:
            said, self._memory = bytes(self._memory), None
            self._keep(0, said)

    def inline(self) -> bytes | None:
        """All that was said, if it is in memory."""
        return None if self._memory is None else bytes(self._memory)

    def recall(self, total: int, readable: int | None, inline: bytes | None) -> None:
        """What an earlier agent knew."""
        self.total = total
        self.readable = readable
        self._memory = None if inline is None else bytearray(inline)

    def _keep(self, position: int, data: bytes) -> None:
        if self.readable is not None or not data:
            return
        try:
            self._write_file(position, data)
        except OSError:
            self.readable = position  # the command must go on; the rest counts as dropped

    def _write_file(self, position: int, data: bytes) -> None:
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
        """The bytes of this range that were kept."""
        if end <= start:
            return b""
        if self._memory is not None:
            return bytes(self._memory[start:end])
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
