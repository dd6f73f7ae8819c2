"""The table of a run's events: ``sandstream show RUN --events``."""

from __future__ import annotations

from sandstream_bus.log import LogEvent
from sandstream_bus.messages import CallFinished, CallRequested, CallStarted, RunEvent

from sandstream.cli.masking import masked_line
from sandstream.cli.render import (
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
    prefix = events[0].subject.partition(".run.")[0] + ".run."
    names: dict[str, str] = {}
    rows = [
        [
            Cell(str(event.sequence)),
            Cell(clock(event.stored.time), "dim"),
            Cell(duration(seconds_between(first, event.stored.time)), "dim"),
            Cell(str(event.event.__struct_config__.tag)),
            Cell(masked_line(_about(event.event, names))),
            Cell(event.subject.removeprefix(prefix).partition(".")[2], "dim"),
        ]
        for event in events
    ]
    return table(screen, _EVENTS, rows)


def _about(event: RunEvent, names: dict[str, str]) -> str:
    """Which call, by its name and its id; of a shortened output how much there is."""
    match event:
        case CallRequested():
            names[event.call] = event.name or event.kind
        case CallStarted() | CallFinished():
            pass
        case _:
            return ""
    name = names.get(event.call, "")
    if isinstance(event, CallFinished) and event.full_output:
        whole = size(event.full_output_bytes)
        return f"{name} {event.call} (shortened; `artifacts output` has all {whole})"
    return f"{name} {event.call}".strip()
