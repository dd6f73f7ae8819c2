"""A NATS connection of the plainest kind: it sends any bytes as subject, headers and body.

A client library refuses what a hostile program would send. So the protocol is spoken here.
"""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple, Self

Headers = list[tuple[bytes, bytes]]


class Ack(NamedTuple):
    """What the server said to a publish."""

    stream: str = ""
    sequence: int = 0
    duplicate: bool = False
    error: str = ""


class Wire:
    """One connection. Publishes are pipelined, at most ``window`` without an answer."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, window: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._free = asyncio.Semaphore(window)
        self._acks: dict[bytes, asyncio.Future[Ack]] = {}
        self._numbers = 0
        self.failure = ""
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, port: int, window: int = 256) -> Self:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=8 * 1024 * 1024)
        await reader.readline()
        options = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "lang": "fuzz",
        }
        writer.write(b"CONNECT %s\r\nSUB _INBOX.fuzz.* 1\r\n" % json.dumps(options).encode())
        return cls(reader, writer, window)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    async def publish(self, subject: bytes, data: bytes, headers: Headers) -> asyncio.Future[Ack]:
        """Send a message; the future is what the server says about it."""
        await self._free.acquire()
        self._numbers += 1
        reply = b"_INBOX.fuzz.%d" % self._numbers
        ack = self._acks[reply] = asyncio.get_running_loop().create_future()
        ack.add_done_callback(lambda _: self._free.release())
        await self.send(subject, data, headers, reply)
        return ack

    async def send(self, subject: bytes, data: bytes, headers: Headers, reply: bytes = b"") -> None:
        """Send a message whose answer, if any, goes elsewhere."""
        if self.failure:
            raise ConnectionError(self.failure)
        where = subject + b" " + reply if reply else subject
        if headers:
            block = b"NATS/1.0\r\n" + b"".join(b"%s: %s\r\n" % it for it in headers) + b"\r\n"
            size = len(block) + len(data)
            self._writer.write(b"HPUB %s %d %d\r\n" % (where, len(block), size) + block)
        else:
            self._writer.write(b"PUB %s %d\r\n" % (where, len(data)))
        self._writer.write(data + b"\r\n")
        await self._writer.drain()

    async def _read(self) -> None:
        while line := await self._reader.readline():
            verb, *words = line.split()
            if verb == b"PING":
                self._writer.write(b"PONG\r\n")
            elif verb in (b"MSG", b"HMSG"):
                body = await self._reader.readexactly(int(words[-1]) + 2)
                self._answered(words[0], body, has_headers=verb == b"HMSG")
            elif verb == b"-ERR":
                self.failure = line.decode(errors="replace").strip()
        self.failure = self.failure or "the server closed the connection"
        for ack in self._acks.values():
            ack.set_exception(ConnectionError(self.failure))
        self._acks.clear()

    def _answered(self, subject: bytes, body: bytes, *, has_headers: bool) -> None:
        ack = self._acks.pop(subject, None)
        if ack is None:
            return
        if has_headers:  # the server's "no responders"
            ack.set_result(Ack(error=body.split(b"\r\n")[0].decode()))
            return
        said = json.loads(body)
        if "error" in said:
            ack.set_result(Ack(error=said["error"].get("description", "")))
        else:
            place = said.get("stream", ""), said.get("seq", 0)
            ack.set_result(Ack(*place, duplicate=bool(said.get("duplicate"))))
