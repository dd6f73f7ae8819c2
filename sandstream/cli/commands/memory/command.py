"""``sandstream memory``: what agents remember. This module lists; its actions have their own."""

from __future__ import annotations

import argparse

from sandstream_bus.counts import numbered
from sandstream_bus.wire.memory_specs import is_workspace_scope

from sandstream.cli.commands.memory.scopes import (
    MemorySummary,
    all_memories,
    summary_of,
    unread_ends,
)
from sandstream.cli.exits import Exit
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.cli.terminal.render import Cell, Column, Row, age, out, size, table

_COLUMNS = [
    Column("SCOPE", shrinks=16),
    Column("REV", ">", drops=3),
    Column("ROLLOUTS", ">", drops=4),
    Column("SIZE", ">", drops=2),
    Column("CHANGED", ">", drops=1),
    Column("EXTRACT", ">"),
    Column("MERGE", ">"),
    Column("PROBLEM", shrinks=12),
]


def main(arguments: argparse.Namespace) -> int:
    return run_async(_work(arguments), debug=arguments.debug)


async def _work(arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "show":
            from sandstream.cli.commands.memory.show import show

            return await show(arguments)
        case "diff":
            from sandstream.cli.commands.memory.diff import compare

            return await compare(arguments)
        case "undo":
            from sandstream.cli.commands.memory.changes import undo

            return await undo(arguments)
        case "rm":
            from sandstream.cli.commands.memory.changes import remove

            return await remove(arguments)
        case "merge":
            from sandstream.cli.commands.memory.merge import merge

            return await merge(arguments)
        case _:
            return await _list(arguments)


async def _list(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await all_memories(client.bus)
        unread = 0 if found else await unread_ends(client.bus)
    hidden = [it for it in found if is_workspace_scope(it.scope) and not arguments.all]
    shown = [summary_of(it) for it in found if it not in hidden]
    if arguments.json:
        for summary in shown:
            put_json(summary)
        return Exit.OK
    more = f"{len(hidden)} of workspaces: --all" if hidden else ""
    if not shown:
        why = f" ({more})" if more else ""
        say(f"no memories{why}; agents with the capability Memory(scope=…) make them")
        if unread:
            ends = numbered(unread, "message")
            say(f"a memory actor has {ends} to read: ends of runs with possible memories")
        return Exit.OK
    screen = out()
    has_problem = any(it.problems for it in shown)
    columns = _COLUMNS if has_problem else _COLUMNS[:-1]
    for line in table(screen, columns, [_row(it)[: len(columns)] for it in shown]):
        screen.line(line)
    if more:
        say(f"… {more}")
    return Exit.OK


def _row(summary: MemorySummary) -> Row:
    problem = summary.problems[-1] if summary.problems else ""
    if len(summary.problems) > 1:
        problem = f"{problem} (and {len(summary.problems) - 1} more)"
    return [
        Cell(summary.scope, "bold"),
        Cell(str(summary.revision)),
        Cell(str(summary.rollouts)),
        Cell(size(summary.size_bytes)),
        Cell(age(summary.changed_at) if summary.changed_at else "-", "dim"),
        _waiting(summary.to_extract),
        Cell("now", "cyan") if summary.merging else _waiting(summary.to_merge),
        Cell(problem, "red"),
    ]


def _waiting(number: int) -> Cell:
    return Cell(str(number), "cyan") if number else Cell("-", "dim")


def pending_text(summary: MemorySummary) -> str:
    """What is still to be done with it; empty: nothing."""
    parts: list[str] = []
    if summary.to_extract:
        parts.append(f"{numbered(summary.to_extract, 'rollout')} to extract")
    if summary.given_up:
        parts.append(f"{summary.given_up} given up")
    if summary.merging:
        parts.append("merging")
    elif summary.to_merge:
        parts.append(f"{summary.to_merge} to merge")
    return ", ".join(parts)
