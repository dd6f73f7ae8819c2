"""The table of a run's events: ``sandstream show RUN --events``."""

from __future__ import annotations

from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CallFinished, CallRequested, CallStarted
from sandstream_bus.wire.subjects import kind_in

from sandstream._inspect.reader import RunReader
from sandstream._inspect.rows import EventRow
from sandstream.cli.terminal.mask import masked_line
from sandstream.cli.terminal.render import (
    Cell,
    Column,
    Screen,
    clock,
    duration,
    seconds_between,
    size,
    table,
)

_EVENTS = [
    Column("SEQ", ">"),
    Column("TIME", drops=1),
    Column("+", ">"),
    Column("KIND"),
    Column("ABOUT", shrinks=12),
    Column("SUBJECT", shrinks=8, drops=2),
]


def event_lines(screen: Screen, events: list[LogEvent]) -> list[str]:
    """One line for each event; there is at least one."""
    first = events[0].stored.time
    rows = [
        [
            Cell(str(row.sequence)),
            Cell(clock(row.time), "dim"),
            Cell(duration(seconds_between(first, row.time)), "dim"),
            Cell(str(row.event.__struct_config__.tag)),
            Cell(masked_line(_about(row))),
            Cell(kind_in(event.subject), "dim"),
        ]
        for event, row in zip(events, RunReader().read(events), strict=True)
    ]
    return table(screen, _EVENTS, rows)


def _about(row: EventRow) -> str:
    """Which call, by its name and its id; of a shortened output how much there is."""
    event = row.event
    if not isinstance(event, CallRequested | CallStarted | CallFinished):
        return ""
    name = "" if row.request is None else row.request.name or row.request.kind
    if isinstance(event, CallFinished) and event.full_output:
        whole = size(event.full_output_bytes)
        return f"{name} {event.call} (shortened; `artifacts output` has all {whole})"
    return f"{name} {event.call}".strip()
