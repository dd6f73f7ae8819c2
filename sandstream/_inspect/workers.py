"""The processes behind the rows of a timeline: who they were, what each did, what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sandstream_bus.wire.attempts import short_name

from sandstream._inspect.timeline import Row, Timeline

_MOST_COLUMNS = 40
_PID_COLUMNS = 10
"""Names come out of messages, and may be anything."""
_MOST_NAMED = 6


class WorkerSummary(msgspec.Struct, kw_only=True):
    """What one process did for the runs of a timeline."""

    worker: str
    """``host:pid:instance``; empty: processes that the log does not name."""
    steps: dict[str, int]
    """How many steps it finished, by what they are: ``chat``, ``tool``, ``sandbox``, …"""
    takeovers: int = 0
    """How often it took over from a lost process."""
    lost: int = 0
    """How often its work was lost with it."""


def workers_of(drawn: Timeline) -> list[WorkerSummary]:
    """In the order in which they first appear; the nameless ones last."""
    found: dict[str, WorkerSummary] = {}

    def of(worker: str) -> WorkerSummary:
        return found.setdefault(worker, WorkerSummary(worker=worker, steps={}))

    for row in sorted(drawn.rows, key=lambda it: (it.work_ns, it.first_seq)):
        if row.worker:
            it = of(row.worker)
            it.steps[row.operation] = it.steps.get(row.operation, 0) + 1
    for taken in drawn.takeovers:
        of(taken.lost_worker).lost += 1
        of("").lost += taken.count - 1
        of(taken.worker).takeovers += taken.count
    nameless = found.pop("", None)
    return [*found.values(), *([nameless] if nameless is not None and nameless.lost else [])]


def processes_text(workers: Sequence[WorkerSummary]) -> str:
    """Their names in one line; those with whom work was lost say so."""
    shown = [short_name(it.worker) + (" (lost)" if it.lost else "") for it in workers if it.worker]
    more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    return ", ".join(shown[:_MOST_NAMED]) + more


class Where(NamedTuple):
    """How a column names processes: by their pids, if all are on one machine."""

    title: str = ""
    """Empty if there is no room for the column, or if it would be empty."""

    @classmethod
    def of(cls, rows: Sequence[Row], *, is_wide: bool) -> Where:
        workers = {row.worker for row in rows if row.worker}
        if len({host_of(it) for it in workers}) == 1:
            return cls("PID")
        return cls("PROCESS" if is_wide and workers else "")

    def text(self, worker: str) -> str:
        if not self.title or not worker:
            return ""
        name = short_name(worker)
        return (
            name.rpartition(":")[2][:_PID_COLUMNS] if self.title == "PID" else name[:_MOST_COLUMNS]
        )


def host_of(worker: str) -> str:
    return short_name(worker).rpartition(":")[0]
