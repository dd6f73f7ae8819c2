"""Reads that may be stale: JetStream's direct get, single and batched.

On a stream with several replicas any of them may answer, even one that lags behind. So no decision
may depend on such a read alone, and "not found" proves nothing. All functions here have ``stale``
in their names. Use them for displays; use :mod:`fresh` for decisions and lookups.

Outside users have no permission for direct gets: with it, they could make the server copy any
stored message to any subject. When the server refuses the first direct get of a stream, the
connection remembers that, and from then on reads from the stream's leader, message by message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from nats.aio.msg import Msg

from sandstream_bus.errors import BusError, BusUnavailable, PermissionDenied
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.leader import Stored as Stored
from sandstream_bus.nats.leader import ask_leader
from sandstream_bus.wire import headers as h

_BATCH = 512
_TRIES = 40
_AT_ONCE = 64
"""Concurrent requests to a leader."""
MOST_SUBJECTS = 500
"""The maximum per request for last messages: the server refuses answers above 1,024 messages."""
_encode = msgspec.json.encode


class LastEach(NamedTuple):
    """The last message of each subject, according to one replica."""

    found: list[Stored]
    upto: int
    """The last sequence of the stream on that replica."""


async def stale_at(
    connection: Connection, stream: str, sequences: Sequence[int]
) -> list[Stored] | None:
    """The messages at these sequences, in any order; None if one of them is gone, if a replica does
    not have it yet, or if it does not answer.

    A found message is never outdated: a sequence is used only once.
    """
    queries = [b'{"seq":%d}' % sequence for sequence in sequences]
    if stream in connection.no_direct_gets:
        return await _at_of_leader(connection, stream, sequences)
    try:
        replies = await connection.request_each(f"$JS.API.DIRECT.GET.{stream}", queries)
    except PermissionDenied:
        connection.no_direct_gets.add(stream)
        return await _at_of_leader(connection, stream, sequences)
    except (TimeoutError, BusUnavailable):
        return None
    if not all(h.SEQUENCE in (it.headers or {}) for it in replies):
        return None
    return list(map(_stored, replies))


async def stale_many(
    connection: Connection,
    stream: str,
    subject: str,
    *,
    after: int,
    limit: int | None = None,
    tries: int = _TRIES,
    batch: int = _BATCH,
) -> list[Stored]:
    """The messages of a subject (wildcards allowed) with a sequence above ``after``, in order, as
    far as some replica has them. There are no gaps: a lagging replica lacks only the end.

    ``batch``: the number of messages per request. For each batch the server counts the remaining
    messages, which takes tens of milliseconds for a wildcard over a million messages.
    """
    found: list[Stored] = []
    while limit is None or len(found) < limit:
        asked = batch if limit is None else min(batch, limit - len(found))
        query = {"seq": after + 1, "next_by_subj": subject, "batch": asked}
        if stream in connection.no_direct_gets:
            return found + await _many_of_leader(connection, stream, subject, after, limit)
        try:
            messages, end = await _retrying_many(connection, stream, _encode(query), tries)
        except PermissionDenied:
            connection.no_direct_gets.add(stream)
            continue
        found.extend(map(_stored, messages))
        if not messages or int((end.headers or {}).get(h.NUM_PENDING, "0")) == 0:
            break
        after = found[-1].sequence
    return found


async def stale_last_each(
    connection: Connection, stream: str, subjects: Sequence[str]
) -> list[Stored]:
    """The last message of each subject, in stream order."""
    found: list[Stored] = []
    for index in range(0, len(subjects), MOST_SUBJECTS):
        some = subjects[index : index + MOST_SUBJECTS]
        found.extend((await last_each_of_a_replica(connection, stream, some)).found)
    return sorted(found)


async def last_each_of_a_replica(
    connection: Connection, stream: str, subjects: Sequence[str]
) -> LastEach:
    """The last message of up to ``MOST_SUBJECTS`` subjects, and the replica's last sequence."""
    query = _encode({"multi_last": list(subjects)})
    if stream in connection.no_direct_gets:
        return await _last_each_of_leader(connection, stream, subjects)
    try:
        messages, end = await _retrying_many(connection, stream, query, _TRIES)
    except PermissionDenied:
        connection.no_direct_gets.add(stream)
        return await _last_each_of_leader(connection, stream, subjects)
    upto = int((end.headers or {}).get(h.UPTO_SEQUENCE, "0"))
    return LastEach(list(map(_stored, messages)), upto)


# --- without direct gets --------------------------------------------------------------------------


async def _at_of_leader(
    connection: Connection, stream: str, sequences: Sequence[int]
) -> list[Stored] | None:
    asked = (ask_leader(connection, stream, {"seq": it}) for it in sequences)
    found = [it for it in await asyncio.gather(*asked) if it is not None]
    return found if len(found) == len(sequences) else None


async def _many_of_leader(
    connection: Connection, stream: str, subject: str, after: int, limit: int | None
) -> list[Stored]:
    found: list[Stored] = []
    while limit is None or len(found) < limit:
        query = {"seq": after + 1, "next_by_subj": subject}
        message = await ask_leader(connection, stream, query)
        if message is None:
            break
        found.append(message)
        after = message.sequence
    return found


async def _last_each_of_leader(
    connection: Connection, stream: str, subjects: Sequence[str]
) -> LastEach:
    """Each wildcard matches one token, and each subject matches at most one message subject."""
    found: list[Stored] = []
    for index in range(0, len(subjects), _AT_ONCE):
        some = subjects[index : index + _AT_ONCE]
        asked = (ask_leader(connection, stream, {"last_by_subj": it}) for it in some)
        found += [it for it in await asyncio.gather(*asked) if it is not None]
    upto = (await ask_leader(connection, stream, {"last_by_subj": ">"})) if found else None
    return LastEach(found, upto.sequence if upto else 0)


# --- replies --------------------------------------------------------------------------------------


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


async def _retrying_many(
    connection: Connection, stream: str, query: bytes, tries: int
) -> tuple[list[Msg], Msg]:
    for _ in range(tries):
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
    raise BusUnavailable(f"the log cannot be read: no answer on $JS.API.DIRECT.GET.{stream}")
