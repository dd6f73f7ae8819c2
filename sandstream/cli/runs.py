"""``sandstream runs``: the newest runs as a table."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from sandstream.cli.event_texts import STATUS_STYLES, value_text
from sandstream.cli.exits import Exit
from sandstream.cli.masking import masked
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
from sandstream.summaries import RunSummary, Which, list_runs

_CHILDREN = Column("CHILDREN", ">", drops=7)
_COLUMNS = [
    Column("RUN", shrinks=22),
    Column("STATUS"),
    Column("AGENT", shrinks=8, drops=2),
    Column("AGE", ">", drops=3),
    Column("TOOK", ">", drops=4),
    Column("TURNS", ">", drops=6),
    Column("TOKENS", ">", drops=5),
    _CHILDREN,
    Column("NOW / RESULT", shrinks=12, drops=1),
]


def main(arguments: argparse.Namespace) -> int:
    return run_async(_list(arguments), debug=arguments.debug)


async def _list(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await _newest(
            client,
            arguments.limit,
            arguments.status,
            "trees" if arguments.tree else "top_level",
        )
    if arguments.json:
        for summary in found:
            put_json(summary)
        return Exit.OK
    if not found:
        which = f"{arguments.status} " if arguments.status else ""
        say(f'no {which}runs; start one: sandstream run app.py "hello"')
        return Exit.OK
    screen = out()
    has_children = any(summary.children for summary in found)
    columns = [it for it in _COLUMNS if has_children or it is not _CHILDREN]
    rows = [
        [cell for it, cell in zip(_COLUMNS, _row(summary, prefix), strict=True) if it in columns]
        for summary, prefix in in_tree_order(found)
    ]
    for line in table(screen, columns, rows):
        screen.line(line)
    return Exit.OK


async def _newest(client: Client, limit: int, status: str | None, which: Which) -> list[RunSummary]:
    """The newest runs of a status, looking further back until there are enough."""
    looked_at = limit
    while True:
        runs = await list_runs(client.bus, limit=looked_at, which=which)
        found = [run for run in runs if status is None or run.status == status]
        tops = sum(not run.parent for run in runs)
        if status is None or len(found) >= limit or tops < looked_at:
            return found if status is None else found[:limit]
        looked_at *= 4


def in_tree_order(found: Sequence[RunSummary]) -> list[tuple[RunSummary, str]]:
    """Runs in their order, each with the runs below it right after it, and how far to indent."""
    known = {summary.run_id for summary in found}
    below: dict[str, list[RunSummary]] = {}
    for summary in found:
        below.setdefault(summary.parent if summary.parent in known else "", []).append(summary)

    def walk(run: str, depth: int) -> Iterator[tuple[RunSummary, str]]:
        for summary in below.get(run, ()):
            yield summary, f"{'  ' * (depth - 1)}└ " if depth else ""
            yield from walk(summary.run_id, depth + 1)

    for children in (runs for parent, runs in below.items() if parent):
        children.sort(key=lambda it: it.started_at)
    return list(walk("", 0))


def _row(summary: RunSummary, prefix: str) -> Row:
    took = seconds_between(summary.started_at, summary.ended_at)
    return [
        Cell(summary.run_id, "" if summary.is_over else "bold", prefix),
        Cell(summary.status.replace("_", " "), STATUS_STYLES.get(summary.status, "")),
        Cell(summary.agent),
        Cell(age(summary.started_at), "dim"),
        Cell(duration(took), "dim"),
        Cell(str(summary.turns)),
        Cell(count(summary.usage.total_tokens)),
        Cell(str(summary.children) if summary.children else ""),
        Cell(masked(ending(summary)), "red" if summary.error else "dim"),
    ]


def ending(summary: RunSummary) -> str:
    """What a run does now, or what came of it."""
    if not summary.is_over:
        tool = summary.step.removeprefix("tool ")
        return summary.step if tool == summary.step else f"→ {tool}"
    if summary.error is not None:
        return summary.error.message
    return "" if summary.output is None else value_text(summary.output)
