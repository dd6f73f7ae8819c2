"""``sandstream memory diff``: how a change of a memory changed its files, and which there were."""

from __future__ import annotations

import argparse

import msgspec
from sandstream_actors.memory.scope.files import load
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.wire.memories import MemoryState, Revision
from sandstream_memory.diffs import unified

from sandstream.cli.commands.memory.scopes import memory_named, revision_named
from sandstream.cli.exits import Exit
from sandstream.cli.session import connected, put_json, say
from sandstream.cli.terminal.render import (
    Cell,
    Column,
    Row,
    Screen,
    age,
    clean,
    one_line,
    out,
    table,
)

_COLUMNS = [
    Column("REVISION", ">"),
    Column("KIND"),
    Column("CHANGED", ">"),
    Column("BY", shrinks=12, drops=1),
    Column("OF", shrinks=12, drops=2),
    Column("NOTE", shrinks=12, drops=3),
]
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_KINDS = {"merge": "green", "edit": "blue", "undo": "yellow", "remove": "red", "import": "cyan"}


class ChangeRecord(msgspec.Struct, kw_only=True):
    """What ``diff --json`` prints."""

    scope: str
    change: Revision
    diff: str


async def compare(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        state = await memory_named(client, arguments.scope)
        if arguments.list or (not state.history and arguments.revision is None):
            return _list(state, as_json=arguments.json)
        change = revision_named(state, arguments.revision)
        diff = await difference(client.bus, state, change)
    if arguments.json:
        put_json(ChangeRecord(scope=state.scope, change=change, diff=diff))
        return Exit.OK
    say(change_text(change))
    for remark in change.remarks:
        say(f"  {one_line(remark)}")
    if not diff:
        say("no file that can be edited was changed by it")
    print_diff(out(), diff)
    return Exit.OK


async def difference(bus: Bus, state: MemoryState, change: Revision) -> str:
    """The change as a unified diff."""
    before = await bus.memories.get_tree(state.scope, change.before)
    after = await bus.memories.get_tree(state.scope, change.after)
    changed = [it for it in before.keys() | after.keys() if before.get(it) != after.get(it)]
    return unified(
        await load(bus, state.scope, before, changed), await load(bus, state.scope, after, changed)
    )


def print_diff(screen: Screen, diff: str) -> None:
    """Coloured on a terminal; there, nothing in it steers it."""
    if not screen.is_terminal:
        screen.stream.write(diff)
        return
    for line in clean(diff).splitlines():
        is_header = line.startswith(("--- ", "+++ "))
        screen.line(screen.paint(line, "bold" if is_header else _STYLES.get(line[:1], "")))


def change_text(change: Revision) -> str:
    """What a change was, in one line."""
    parts = [f"revision {change.number}", change.kind, f"{age(change.at)} ago"]
    if change.by:
        parts.append(f"by {change.by}")
    if change.runs:
        parts.append(f"of {numbered(len(change.runs), 'run')}")
    if change.note:
        parts.append(change.note)
    return one_line(" · ".join(parts))


def _list(state: MemoryState, *, as_json: bool) -> int:
    if as_json:
        for change in reversed(state.history):
            put_json(change)
        return Exit.OK
    if not state.history:
        say(f"memory {one_line(state.scope)} has no changes yet")
        return Exit.OK
    screen = out()
    for line in table(screen, _COLUMNS, [_row(it) for it in reversed(state.history)]):
        screen.line(line)
    return Exit.OK


def _row(change: Revision) -> Row:
    return [
        Cell(str(change.number), "bold"),
        Cell(change.kind, _KINDS[change.kind]),
        Cell(age(change.at), "dim"),
        Cell(change.by or "-"),
        Cell(", ".join(change.runs) or "-", "dim"),
        Cell(change.note),
    ]
