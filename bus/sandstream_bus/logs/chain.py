"""Reads a run by the sequences that its events name.

For a read by subject the server searches everything stored between two events of the run, so its
cost grows with the number of other runs. A read by sequence does not. Events help in two ways. The
compare-and-set of an event names its predecessor, and the server has verified it. A decision also
names the events before it, in the header ``Sandstream-Before``, so that many of them can be fetched
at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandstream_bus.logs.remarks import is_stray
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored, stale_at
from sandstream_bus.nats.fresh import is_number, predecessor
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.subjects import Subjects

BEFORE = 32
"""How many events a decision names."""
_MOST_HOPS = 400
"""A longer chain of events that name only their predecessors is read by subject."""


def before_header(sequences: Iterable[int]) -> dict[str, str]:
    """The header of a decision that follows these events of its run, oldest first."""
    known = ",".join(map(str, sequences))
    return {h.BEFORE: known} if known else {}


class Chain:
    """Follows the events of runs backwards through the stream."""

    def __init__(self, connection: Connection, subjects: Subjects, stream: str) -> None:
        self._connection = connection
        self._subjects = subjects
        self._stream = stream

    async def back_to(self, run_all: str, last: Stored, *, after: int) -> list[Stored] | None:
        """The events after ``after`` up to ``last``, in order; None if they cannot be found this
        way.
        ``run_all`` is the subject of all events of the run.
        """
        found = {last.sequence: last}
        for _ in range(_MOST_HOPS):
            before = self._before(run_all, found)
            if before is None:
                return None
            wanted = [it for it in before if it > after and it not in found]
            if wanted:
                fetched = await stale_at(self._connection, self._stream, wanted)
                if fetched is None or not all(_is_below(run_all, it.subject) for it in fetched):
                    return None
                found |= {stored.sequence: stored for stored in fetched}
            if min(before) <= after:
                return [found[it] for it in sorted(found)]
        return None

    def _before(self, run_all: str, found: dict[int, Stored]) -> list[int] | None:
        """The sequences before the known events, as far as one of these names them."""
        oldest = min(found)
        for sequence in sorted(found):
            stored = found[sequence]
            named = self._named(run_all, stored)
            if named and min(named) < oldest:
                return named
        return None

    def _named(self, run_all: str, stored: Stored) -> list[int]:
        before = self.predecessor(run_all, stored)
        if before is None:
            return []
        listed = [it for it in stored.headers.get(h.BEFORE, "").split(",") if it]
        return [*map(int, listed), before] if all(map(is_number, listed)) else []

    def predecessor(self, run_all: str, stored: Stored) -> int | None:
        """The event before this one, if that is certain. Remarks of outside users may have any
        headers, even duplicates, and a server may be made to write messages: these prove nothing.
        """
        if is_stray(self._subjects, stored.subject, stored.headers):
            return None
        return predecessor(stored, run_all)


def _is_below(run_all: str, subject: str) -> bool:
    return subject.startswith(run_all.removesuffix(">"))
