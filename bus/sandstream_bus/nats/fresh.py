"""Reads that are never stale: they ask the stream's leader, or verify that they reach a sequence.

All decisions and lookups read through this module: call results, conversations, sandboxes,
memories, registrations, approvals. On a stream with one replica this costs one more small request
than a direct get; on a cluster it tells "there is nothing" from "this replica does not know yet".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from sandstream_bus.errors import BusUnavailable, LogBehind
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import (
    MOST_SUBJECTS,
    last_each_of_a_replica,
    stale_many,
)
from sandstream_bus.nats.leader import Stored, ask_leader, leader_end
from sandstream_bus.wire import headers as h

_PAUSES_S = (0.0, 0.002, 0.01, 0.05)
"""The pauses before a lagging replica is asked again; then the leader answers each message."""
_LEADER_PATIENCE_S = 10.0
"""How long a new leader may take to apply what its predecessor had acknowledged."""
_FEW = 8


async def fresh_last(connection: Connection, stream: str, subject: str) -> Stored | None:
    """The last message of a subject (wildcards allowed)."""
    return await ask_leader(connection, stream, {"last_by_subj": subject})


async def fresh_next(
    connection: Connection, stream: str, subject: str, *, after: int
) -> Stored | None:
    """The first message of a subject (wildcards allowed) with a sequence above ``after``."""
    return await ask_leader(connection, stream, {"seq": after + 1, "next_by_subj": subject})


async def fresh_many(
    connection: Connection,
    stream: str,
    subject: str,
    *,
    after: int,
    limit: int | None = None,
) -> list[Stored]:
    """All messages of a subject (wildcards allowed) with a sequence above ``after``, in order."""
    last = await fresh_last(connection, stream, subject)
    if last is None or last.sequence <= after:
        return []
    if "*" not in subject and ">" not in subject and predecessor(last, subject) == after:
        return [last]  # the only new message
    return await many_reaching(
        connection, stream, subject, after=after, upto=last.sequence, limit=limit
    )


async def many_reaching(
    connection: Connection,
    stream: str,
    subject: str,
    *,
    after: int,
    upto: int,
    limit: int | None = None,
) -> list[Stored]:
    """The messages of a subject above ``after``, at least up to the one at ``upto``.

    Raises :class:`LogBehind` if even the leader does not have that one yet. Expired or removed
    messages are not waited for.
    """
    found: list[Stored] = []

    def is_enough() -> bool:
        if limit is not None and len(found) >= limit:
            return True
        return (found[-1].sequence if found else after) >= upto

    for pause_s in _PAUSES_S:
        await asyncio.sleep(pause_s)
        start = found[-1].sequence if found else after
        rest = None if limit is None else limit - len(found)
        try:
            found += await stale_many(connection, stream, subject, after=start, limit=rest, tries=1)
        except BusUnavailable:
            break  # that replica may be stopped or cut off: ask the leader
        if is_enough():
            return found
    return await _walk_leader(connection, stream, subject, found, after, upto, is_enough)


async def _walk_leader(
    connection: Connection,
    stream: str,
    subject: str,
    found: list[Stored],
    after: int,
    upto: int,
    is_enough: Callable[[], bool],
) -> list[Stored]:
    """Continue reading from the leader, message by message: slow but correct."""
    deadline = time.monotonic() + _LEADER_PATIENCE_S
    while not is_enough():
        start = (found[-1].sequence if found else after) + 1
        query = {"seq": start, "next_by_subj": subject}
        message = await ask_leader(connection, stream, query)
        if message is not None:
            found.append(message)
        elif await leader_end(connection, stream) >= upto:
            break  # it existed, and has expired or was removed
        elif time.monotonic() > deadline:
            raise LogBehind(
                f"the stream {stream} does not return the message {upto} of {subject}, "
                "although its publisher got an acknowledgement"
            )
        else:
            await asyncio.sleep(0.1)
    return found


async def leader_reaching(connection: Connection, stream: str, sequence: int) -> None:
    """Wait until the stream's leader has the message that woke the caller: a new leader, or one
    that does not know yet that there is another, would answer "there is nothing".

    Raises :class:`LogBehind`.
    """
    deadline = time.monotonic() + _LEADER_PATIENCE_S
    while await leader_end(connection, stream) < sequence:
        if time.monotonic() > deadline:
            raise LogBehind(
                f"the leader of the stream {stream} does not have the message {sequence}, "
                "although a consumer has delivered it"
            )
        await asyncio.sleep(0.1)


async def fresh_last_each(
    connection: Connection, stream: str, subjects: Sequence[str]
) -> list[Stored]:
    """The last message of each subject, in stream order. Each wildcard matches one token, and each
    subject matches at most one message subject.
    """
    if len(subjects) <= _FEW:
        found = await asyncio.gather(*(fresh_last(connection, stream, it) for it in subjects))
        return sorted(it for it in found if it is not None)
    end = await fresh_last(connection, stream, ">")
    if end is None:
        return []
    each: list[Stored] = []
    for index in range(0, len(subjects), MOST_SUBJECTS):
        some = subjects[index : index + MOST_SUBJECTS]
        each += await _each_upto(connection, stream, some, end)
    return sorted(each)


async def _each_upto(
    connection: Connection, stream: str, subjects: Sequence[str], end: Stored
) -> list[Stored]:
    """The last message of each subject, from a replica that has the message ``end``."""
    deadline = time.monotonic() + _LEADER_PATIENCE_S
    pause_s = 0.002
    asked = list(subjects)
    while True:
        each = await last_each_of_a_replica(connection, stream, asked)
        if each.upto >= end.sequence:
            if any(_matches(it, end.subject) for it in subjects):
                return each.found
            return [it for it in each.found if it.subject != end.subject]
        if each.found or len(asked) > len(subjects):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.2)
        else:  # a replica without matches does not say how far it is: add a known subject
            asked = [*subjects, end.subject]
        if time.monotonic() > deadline:
            raise LogBehind(
                f"no replica of the stream {stream} that answers has the message {end.sequence}"
            )


def _matches(pattern: str, subject: str) -> bool:
    """Does a subject match a pattern whose wildcards match one token each?"""
    wanted, found = pattern.split("."), subject.split(".")
    return len(wanted) == len(found) and all(
        one in ("*", other) for one, other in zip(wanted, found, strict=True)
    )


def is_number(text: str) -> bool:
    """Is it a sequence? Servers also store malformed headers."""
    return text.isascii() and text.isdecimal() and len(text) < 20


def predecessor(stored: Stored, subject: str) -> int | None:
    """The sequence of the previous message below ``subject``, if the writer stated it.

    The server has verified it: it stored the message only because nothing else came between. On
    a replicated stream that holds only for a subject without wildcards.
    """
    if stored.headers.get(h.EXPECTED_SUBJECT) != subject or h.OVERLAPPING in stored.headers:
        return None
    expected = stored.headers.get(h.EXPECTED_SEQUENCE, "")
    return int(expected) if is_number(expected) else None
