"""``sandstream runs``: the newest runs as a table."""

from __future__ import annotations

import argparse

from sandstream.cli.event_lines import STATUS_STYLES, value_text
from sandstream.cli.exits import Exit
from sandstream.cli.render import (
    Cell,
    Column,
    Row,
    age,
    count,
    duration,
    out,
    seconds_between,
    table,
)
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.client import Client
from sandstream.summaries import RunSummary

_COLUMNS = [
    Column("RUN", shrinks=22),
    Column("STATUS"),
    Column("AGENT", shrinks=8, drops=2),
    Column("AGE", ">", drops=3),
    Column("TOOK", ">", drops=4),
    Column("TURNS", ">", drops=6),
    Column("TOKENS", ">", drops=5),
    Column("NOW / RESULT", shrinks=12, drops=1),
]


def main(arguments: argparse.Namespace) -> int:
    return run_async(_list(arguments), debug=arguments.debug)


async def _list(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await newest(client, arguments.limit, arguments.status)
    if arguments.json:
        for summary in found:
            put_json(summary)
        return Exit.OK
    if not found:
        which = f"{arguments.status} " if arguments.status else ""
        say(f'no {which}runs; start one: sandstream run app.py "hello"')
        return Exit.OK
    screen = out()
    for line in table(screen, _COLUMNS, [row_of(summary) for summary in found]):
        screen.line(line)
    return Exit.OK


async def newest(client: Client, limit: int, status: str | None) -> list[RunSummary]:
    """The newest runs of a status, looking further back until there are enough."""
    looked_at = limit
    while True:
        runs = await client.list(limit=looked_at)
        found = [run for run in runs if status is None or run.status == status]
        if len(found) >= limit or len(runs) < looked_at:
            return found[:limit]
        looked_at *= 4


def row_of(summary: RunSummary) -> Row:
    took = seconds_between(summary.started_at, summary.ended_at)
    return [
        Cell(summary.run_id, "bold" if summary.status == "running" else ""),
        Cell(summary.status.replace("_", " "), STATUS_STYLES.get(summary.status, "")),
        Cell(summary.agent),
        Cell(age(summary.started_at), "dim"),
        Cell(duration(took), "dim"),
        Cell(str(summary.turns)),
        Cell(count(summary.usage.total_tokens)),
        Cell(ending(summary), "red" if summary.error else "dim"),
    ]


def ending(summary: RunSummary) -> str:
    """What a run does now, or what came of it."""
    if summary.status == "running":
        tool = summary.step.removeprefix("tool ")
        return summary.step if tool == summary.step else f"→ {tool}"
    if summary.error is not None:
        return summary.error.message
    return "" if summary.output is None else value_text(summary.output)
