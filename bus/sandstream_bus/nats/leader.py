"""Requests to the leader of a stream: one message at a time, or the end of the stream.

The answer is JSON in the body of a reply. So a user with permission for this call can read, but
cannot have a stored message copied to a subject of their choice, as with a direct get.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import msgspec

from sandstream_bus.errors import BusError, BusUnavailable
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.publication import ApiError
from sandstream_bus.wire import headers as h

_PATIENCE_S = 60.0
"""How long a read waits for a leader: without a majority the servers answer so at once."""
_NO_MESSAGE = 10037
_NO_STREAM = 10059
_encode = msgspec.json.encode


class Stored(NamedTuple):
    """A message as stored in the stream."""

    sequence: int
    subject: str
    data: bytes
    headers: dict[str, str]

    @property
    def msg_id(self) -> str:
        return self.headers.get(h.MSG_ID, "")

    @property
    def time(self) -> str:
        """When the server stored the message, RFC 3339."""
        return self.headers.get(h.TIME, "")


class _Message(msgspec.Struct):
    subject: str
    seq: int
    hdrs: bytes = b""
    data: bytes = b""
    time: str = ""


class _State(msgspec.Struct, frozen=True):
    last_seq: int = 0


class _Answer(msgspec.Struct):
    """The leader's answer to either request."""

    message: _Message | None = None
    state: _State = _State()
    error: ApiError | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


async def ask_leader(
    connection: Connection, stream: str, query: dict[str, object]
) -> Stored | None:
    """The message that the query selects; None if there is none."""
    call, body = f"STREAM.MSG.GET.{stream}", _encode(query)
    found = (await _request(connection, stream, call, body)).message
    if found is None:
        return None
    headers = _headers(found.hdrs)
    headers |= {h.SEQUENCE: str(found.seq), h.SUBJECT: found.subject, h.TIME: found.time}
    return Stored(found.seq, found.subject, found.data, headers)


async def leader_end(connection: Connection, stream: str) -> int:
    """The last sequence of the whole stream, according to its leader."""
    return (await _request(connection, stream, f"STREAM.INFO.{stream}", b"")).state.last_seq


async def _request(connection: Connection, stream: str, call: str, query: bytes) -> _Answer:
    """Ask until a leader answers. "No message found" is an answer."""
    failure: Exception | None = None
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            answer = _decode_answer((await connection.request(f"$JS.API.{call}", query)).data)
        except (TimeoutError, BusUnavailable) as error:
            failure = error
        else:
            if answer.error is None or answer.error.err_code == _NO_MESSAGE:
                return answer
            failure = _read_error(stream, answer.error)
            if answer.error.err_code == _NO_STREAM and connection.guard is not None:
                connection.guard.on_missing(stream)
            elif not isinstance(failure, BusUnavailable):
                raise failure
        await asyncio.sleep(0.1)
        await connection.wait_connected(1.0)
    raise BusUnavailable(f"the log cannot be read: no answer on $JS.API.{call}") from failure


def _read_error(stream: str, error: ApiError) -> BusError:
    text = f"reading {stream} failed: {error.description} (JetStream error {error.err_code})"
    return BusUnavailable(text) if error.code == 503 else BusError(text)


def _headers(raw: bytes) -> dict[str, str]:
    """Parse headers from their wire form, which starts with ``NATS/1.0``."""
    lines = raw.decode("utf-8", "surrogateescape").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip(): value.strip() for name, _, value in pairs}
