"""Server-sent events: bytes in, the data of each event out. Knows no HTTP and no JSON."""

from __future__ import annotations


class SseParser:
    """Incremental parser. Drops comments, ids and event names: our events carry their type."""

    __slots__ = ("_data", "_partial", "_started")

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that this chunk completes."""
        if b"\n" not in chunk and b"\r" not in chunk:
            self._partial.append(chunk)
            return []
        text = b"".join((*self._partial, chunk))
        self._partial.clear()
        if not self._started:
            self._started = True
            text = text.removeprefix(b"\xef\xbb\xbf")
        held = b""
        if b"\r" in text:
            # A carriage return at the very end may be the first half of "\r\n".
            if text.endswith(b"\r"):
                held, text = b"\r", text[:-1]
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = text.split(b"\n")
        rest = lines.pop() + held
        if rest:
            self._partial.append(rest)
        return self._take(lines)

    def finish(self) -> list[bytes]:
        """The last event, if the stream ends cleanly without its closing blank line."""
        rest = b"".join(self._partial)
        self._partial.clear()
        return self._take([*rest.replace(b"\r", b"\n").split(b"\n"), b""])

    def _take(self, lines: list[bytes]) -> list[bytes]:
        events = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and data:
                events.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        return events
