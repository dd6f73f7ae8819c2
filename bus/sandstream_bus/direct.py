"""Reading stored messages without a consumer: JetStream's direct get, single and batched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from nats.aio.msg import Msg

from sandstream_bus import headers as h
from sandstream_bus.connection import Connection
from sandstream_bus.errors import BusError, BusUnavailable

_BATCH = 512
_TRIES = 40
_encode = msgspec.json.encode


class Stored(NamedTuple):
    """A message as the stream holds it."""

    sequence: int
    subject: str
    data: bytes
    headers: dict[str, str]

    @property
    def msg_id(self) -> str:
        return self.headers.get(h.MSG_ID, "")

    @property
    def time(self) -> str:
        """When the server stored it, RFC 3339."""
        return self.headers.get(h.TIME, "")


async def direct_get_last(connection: Connection, stream: str, subject: str) -> Stored | None:
    """The last message of a subject."""
    reply = await _retrying(connection, f"$JS.API.DIRECT.GET.{stream}.{subject}", b"")
    if _status(reply):
        return None
    return _stored(reply)


async def direct_get_many(
    connection: Connection,
    stream: str,
    subject: str,
    *,
    after: int,
    limit: int | None = None,
) -> list[Stored]:
    """All messages of a subject (wildcards allowed) with a sequence above ``after``, in order."""
    found: list[Stored] = []
    while limit is None or len(found) < limit:
        batch = _BATCH if limit is None else min(_BATCH, limit - len(found))
        query = {"seq": after + 1, "next_by_subj": subject, "batch": batch}
        messages, end = await _retrying_many(connection, stream, _encode(query))
        found.extend(map(_stored, messages))
        if not messages or int((end.headers or {}).get(h.NUM_PENDING, "0")) == 0:
            break
        after = found[-1].sequence
    return found


async def direct_get_last_each(
    connection: Connection, stream: str, subjects: Sequence[str]
) -> list[Stored]:
    """The last message of each subject (wildcards allowed), in stream order."""
    found: list[Stored] = []
    for index in range(0, len(subjects), 500):
        query = {"multi_last": list(subjects[index : index + 500])}
        messages, _ = await _retrying_many(connection, stream, _encode(query))
        found.extend(map(_stored, messages))
    return sorted(found)


def _stored(message: Msg) -> Stored:
    headers = message.headers or {}
    return Stored(int(headers[h.SEQUENCE]), headers[h.SUBJECT], message.data, headers)


def _status(message: Msg) -> str:
    """The status of an empty answer, such as ``404``; empty for a message."""
    headers = message.headers or {}
    if h.SEQUENCE in headers or h.STATUS not in headers:
        return ""
    status = headers[h.STATUS]
    if status not in ("404", "204"):
        raise BusError(f"reading the log failed: {status} {headers.get(h.DESCRIPTION, '')}")
    return status


async def _retrying(connection: Connection, subject: str, data: bytes) -> Msg:
    for _ in range(_TRIES):
        try:
            return await connection.request(subject, data)
        except (TimeoutError, BusUnavailable):
            await asyncio.sleep(0.05)
            await connection.wait_connected(1.0)
    raise BusUnavailable(f"the log cannot be read: no answer on {subject}")


async def _retrying_many(
    connection: Connection, stream: str, query: bytes
) -> tuple[list[Msg], Msg]:
    for _ in range(_TRIES):
        try:
            messages, end = await connection.request_many(f"$JS.API.DIRECT.GET.{stream}", query)
        except (TimeoutError, BusUnavailable):
            await asyncio.sleep(0.05)
            await connection.wait_connected(1.0)
            continue
        if (end.headers or {}).get(h.STATUS) == "503":
            await asyncio.sleep(0.1)
            continue
        _status(end)
        return messages, end
    raise BusUnavailable(f"the log cannot be read: stream {stream} does not answer")
