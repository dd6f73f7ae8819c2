"""The index of open runs: one small message per run that has not ended.

Only the log is authoritative. The index is a superset of the open runs, so that listing them does
not read the log from its beginning: an entry is written before or together with the event that
opens a run, and removed after the event that ends it. A reader checks entries against the log. A
crash between the two writes leaves a superfluous entry, which redelivery or the next sweep
(harness/expiry.py) removes.

An entry is created if there is none, changed when the run waits for people (``at`` tells which of
two writers is later), and removed. It is not changed when the run continues: a reader sees the
decision in the log.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import WrongSequence
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.nats.connection import PUBLISH_BUDGET_S, Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_many
from sandstream_bus.nats.publication import Expect
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.messages import (
    Message,
    RunDone,
    RunReopened,
    RunRestored,
    RunStarted,
)
from sandstream_bus.wire.open_runs import OpenRun, Question
from sandstream_bus.wire.subjects import RunId, Subjects, is_token

_LARGEST_BYTES = 8 * 1024
_GONE_AFTER_S = 1
"""The shortest TTL that the server accepts."""


class OpenEntry(NamedTuple):
    """An entry of the index."""

    run: RunId
    open: OpenRun
    sequence: int
    since: str


_decode = msgspec.json.Decoder(OpenRun).decode
_encode = msgspec.json.encode


class OpenRuns:
    """Reads and writes the index of one installation."""

    def __init__(self, connection: Connection, subjects: Subjects, stream: str) -> None:
        self._connection = connection
        self._subjects = subjects
        self._stream = stream

    async def enter(
        self, run: str, entry: OpenRun, *, budget_s: float | None = PUBLISH_BUDGET_S
    ) -> None:
        """Create the run's entry unless there is one."""
        subject = self._subjects.open(run)
        crashpoint("index.before_enter")
        try:
            await self._write(run, entry, "enter", expect=Expect(0, subject), budget_s=budget_s)
        except WrongSequence:
            stored = await fresh_last(self._connection, self._stream, subject)
            # the run was reopened at once: its tombstone exists, or has just expired
            if stored is None or _is_tombstone(stored):
                await self._write(run, entry, "enter", budget_s=budget_s)
        crashpoint("index.after_enter")

    async def note_waiting(
        self, run: str, entry: OpenRun, at: int, questions: Sequence[Question]
    ) -> None:
        """Note that the run waits since its event ``at``. ``entry`` is used if there is none."""
        subject = self._subjects.open(run)
        while True:
            found = await fresh_last(self._connection, self._stream, subject)
            known = self._entry(found) if found is not None else None
            if known is not None:
                if known.open.at >= at:
                    return
                entry = msgspec.structs.replace(known.open, since=known.since)
            entry = waiting_entry(entry, at, questions)
            expect = Expect(found.sequence if found is not None else 0, subject)
            try:
                await self._write(run, entry, "waiting", expect=expect, budget_s=None)
            except WrongSequence:
                await asyncio.sleep(0.01)  # another writer, or our own write, whose answer got lost
            else:
                break
        crashpoint("index.after_waiting")

    async def leave(self, run: str) -> None:
        """The run has ended. Replace its entry by one that expires: a publish is cheaper than a
        purge and needs no permission to delete.
        """
        crashpoint("index.before_leave")
        gone = {h.TTL: f"{_GONE_AFTER_S}s"}
        await self._write(run, OpenRun(ended=True), "leave", headers=gone, budget_s=None)
        crashpoint("index.after_leave")

    async def has(self, run: str) -> bool:
        """Does the index list the run as open?"""
        found = await fresh_last(self._connection, self._stream, self._subjects.open(run))
        return found is not None and self._entry(found) is not None

    async def all(self) -> list[OpenEntry]:
        """All entries, in the order of their last write."""
        found = await fresh_many(self._connection, self._stream, self._subjects.open("*"), after=0)
        entries = (self._entry(stored) for stored in found)
        return [entry for entry in entries if entry is not None]

    def _entry(self, stored: Stored) -> OpenEntry | None:
        """None for a tombstone and for an invalid run id. An entry that cannot be decoded still
        counts as an open run.
        """
        run = RunId(stored.subject.rpartition(".")[2])
        if not is_token(run):  # a wildcard would match other runs
            return None
        try:
            found = _decode(stored.data)
        except NOT_JSON:
            found = OpenRun(waited=True)
        if found.ended:
            return None
        return OpenEntry(run, found, stored.sequence, found.since or stored.time)

    async def _write(
        self,
        run: str,
        entry: OpenRun,
        name: str,
        *,
        budget_s: float | None,
        headers: dict[str, str] | None = None,
        expect: Expect | None = None,
    ) -> None:
        await self._connection.publish(
            self._subjects.open(run),
            _encode(entry),
            msg_id=f"{run}:{name}:{uuid.uuid4().hex}",  # a removed entry may be written again
            headers=headers,
            expect=expect,
            budget_s=budget_s,
        )


def waiting_entry(entry: OpenRun, at: int, questions: Sequence[Question]) -> OpenRun:
    """The entry of a run that waits since its event ``at``."""
    entry = msgspec.structs.replace(entry, waited=True, at=at, questions=list(questions))
    if len(_encode(entry)) <= _LARGEST_BYTES:
        return entry
    return msgspec.structs.replace(entry, questions=[])


def entry_of(started: RunStarted) -> OpenRun:
    """The entry of a run with this start event."""
    parent = started.parent
    session = started.options.session
    return OpenRun(
        agent=started.graph.start,
        pool=started.pool,
        parent=parent.run if parent else "",
        root=parent.root if parent else "",
        session=session.id if session else "",
    )


def opened_by(message: Message) -> OpenRun | None:
    """The entry of the run that this event opens; None if it opens none."""
    if isinstance(message, RunStarted):
        return entry_of(message)
    if isinstance(message, RunRestored):
        return OpenRun(pool=message.pool)
    if isinstance(message, RunReopened):
        return OpenRun(waited=True)
    return None


def is_over(events: Sequence[Message]) -> bool:
    """Do the newest events of a run leave it ended?"""
    for event in reversed(events):
        if isinstance(event, RunDone):
            return True
        if isinstance(event, RunStarted | RunReopened | RunRestored):
            return False
    return False


def _is_tombstone(stored: Stored) -> bool:
    return h.TTL in stored.headers
