"""``sandstream memory show``: what a memory says, where that comes from, and its files."""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Sequence

import msgspec
from sandstream_actors.memory.scope.pending_work import has_given_up, is_pending
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.wire.memories import MemoryState, Rollout

from sandstream.cli.commands.memory.command import pending_text
from sandstream.cli.commands.memory.scopes import (
    MemorySummary,
    memory_named,
    path_named,
    short_path,
    summary_of,
)
from sandstream.cli.exits import CliError, Exit
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
    pad,
    size,
    table,
)

SUMMARY_PATH = "memories/memory_summary.md"
_MOST_ROLLOUTS = 20
_MOST_RUNS = 3
_NAME_WIDTH = 13
_ROLLOUTS = [
    Column("ROLLOUT", shrinks=16),
    Column("STATE", shrinks=12),
    Column("UPDATED", ">", drops=2),
    Column("SLUG", shrinks=10, drops=3),
    Column("RUNS", shrinks=12, drops=1),
]
_FILES = [Column("SIZE", ">"), Column("FILE", shrinks=20)]


class FileRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One file as ``--json`` prints it."""

    path: str
    size_bytes: int
    text: str | None = None
    data: str = ""
    """Base64 of a file that is not text."""


class Shown(msgspec.Struct, kw_only=True):
    """What ``show --json`` prints."""

    summary: MemorySummary
    text: str
    """The text of memory_summary.md, which is part of the agents' instructions."""
    rollouts: list[Rollout]
    files: list[FileRecord]


async def show(arguments: argparse.Namespace) -> int:
    if arguments.raw and arguments.json:
        raise CliError(Exit.USAGE, "--raw and --json exclude each other")
    async with connected() as client:
        state = await memory_named(client, arguments.scope)
        if arguments.path:
            found = path_named(state, arguments.path)
            if found.is_file:
                return await _show_file(client.bus, state, found.paths[0], arguments)
            return _show_directory(state, found.paths, arguments)
        if arguments.raw:
            path = path_named(state, SUMMARY_PATH).paths[0]
            return await _show_file(client.bus, state, path, arguments)
        text = (await _bytes_of(client.bus, state, SUMMARY_PATH)).decode("utf-8", "replace")
    if arguments.json:
        files = [_record(state, path) for path in sorted(state.tree)]
        put_json(
            Shown(
                summary=summary_of(state),
                text=text,
                rollouts=list(state.rollouts.values()),
                files=files,
            )
        )
        return Exit.OK
    _print(out(), state, text, is_all=arguments.all)
    return Exit.OK


# --- all of it ------------------------------------------------------------------------------------


def _print(screen: Screen, state: MemoryState, text: str, *, is_all: bool) -> None:
    _print_facts(screen, state)
    if state.rollouts:
        _print_rollouts(screen, state, is_all=is_all)
    if state.tree:
        screen.line()
        paths = sorted(state.tree)
        rows = [_file_row(state, it) for it in paths] if is_all else _grouped(state, paths)
        for line in table(screen, _FILES, rows):
            screen.line(line)
    screen.line()
    screen.line(screen.paint("SUMMARY", "dim"))
    if text.strip():
        screen.line(clean(text).rstrip())
    else:
        screen.line(screen.paint("nothing is consolidated yet", "dim"))


def _print_facts(screen: Screen, state: MemoryState) -> None:
    summary = summary_of(state)
    last = state.history[-1] if state.history else None
    change = f"revision {last.number}, {last.kind}, {age(last.at)} ago" if last is not None else ""
    models = f"{state.use.phase_one.model} extracts, {state.use.phase_two.model} consolidates"
    facts = [
        ("memory", screen.paint(one_line(summary.scope), "bold")),
        ("revision", str(summary.revision)),
        ("last change", change),
        ("size", f"{size(summary.size_bytes)} in {numbered(summary.files, 'file')}"),
        ("from", f"{numbered(summary.runs, 'run')} in {numbered(summary.rollouts, 'rollout')}"),
        ("models", one_line(models) if state.rollouts else ""),
        ("pending", screen.paint(pending_text(summary), "cyan")),
        ("merging", f"run {summary.merging}" if summary.merging else ""),
        ("forked from", one_line(state.parent.scope) if state.parent is not None else ""),
        ("workspaces", one_line(", ".join(summary.workspaces))),
        *(("problem", screen.paint(one_line(it), "red")) for it in summary.problems),
    ]
    for name, value in facts:
        if value:
            screen.line(screen.paint(pad(name, _NAME_WIDTH), "dim") + value)


def _print_rollouts(screen: Screen, state: MemoryState, *, is_all: bool) -> None:
    newest = sorted(state.rollouts.values(), key=lambda it: it.updated_at, reverse=True)
    shown = newest if is_all else newest[:_MOST_ROLLOUTS]
    screen.line()
    for line in table(screen, _ROLLOUTS, [_rollout_row(it, is_all=is_all) for it in shown]):
        screen.line(line)
    if len(newest) > len(shown):
        screen.line(screen.paint(f"… {len(newest) - len(shown)} more (--all)", "dim"))


def _rollout_row(rollout: Rollout, *, is_all: bool) -> Row:
    text, style = rollout_state(rollout)
    runs = rollout.runs if is_all else rollout.runs[-_MOST_RUNS:]
    earlier = len(rollout.runs) - len(runs)
    named = ", ".join(runs) + (f" and {earlier} before" if earlier else "")
    return [
        Cell(rollout.id),
        Cell(text, style),
        Cell(age(rollout.updated_at) if rollout.updated_at else "-", "dim"),
        Cell(rollout.slug or "-"),
        Cell(named, "dim"),
    ]


def rollout_state(rollout: Rollout) -> tuple[str, str]:
    """How far the rollout is processed, and the style of the text."""
    if has_given_up(rollout):
        return "failed", "red"
    if rollout.extracting:
        return "extracting" + (f", try {rollout.attempt}" if rollout.attempt > 1 else ""), "cyan"
    if is_pending(rollout):
        return ("to extract again" if rollout.problem else "to extract"), "cyan"
    if rollout.is_merged:
        return "merged", "green"
    return ("nothing to keep", "dim") if rollout.empty else ("to merge", "cyan")


# --- files ----------------------------------------------------------------------------------------


async def _show_file(bus: Bus, state: MemoryState, path: str, arguments: argparse.Namespace) -> int:
    data = await _bytes_of(bus, state, path)
    if arguments.json:
        put_json(_with_content(_record(state, path), data))
        return Exit.OK
    if sys.stdout.isatty() and not arguments.raw:
        data = clean(data.decode("utf-8", "replace")).encode()
        if data and not data.endswith(b"\n"):
            data += b"\n"
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    if not data:
        say(f"{short_path(path)} is empty")
    return Exit.OK


def _show_directory(state: MemoryState, paths: Sequence[str], arguments: argparse.Namespace) -> int:
    if arguments.json:
        for path in paths:
            put_json(_record(state, path))
        return Exit.OK
    if arguments.raw:
        raise CliError(Exit.USAGE, f"{arguments.path} is a directory: --raw wants a file")
    screen = out()
    for line in table(screen, _FILES, [_file_row(state, path) for path in paths]):
        screen.line(line)
    return Exit.OK


def _file_row(state: MemoryState, path: str) -> Row:
    return [Cell(size(state.tree[path].size)), Cell(short_path(path))]


def _grouped(state: MemoryState, paths: Sequence[str]) -> list[Row]:
    """The files, and directories with how many there are in each."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        name, _, below = short_path(path).partition("/")
        groups.setdefault(f"{name}/" if below else name, []).append(path)
    rows: list[Row] = []
    for name, members in sorted(groups.items(), key=lambda it: (it[0].endswith("/"), it[0])):
        amount = size(sum(state.tree[it].size for it in members))
        many = f" ({numbered(len(members), 'file')})" if name.endswith("/") else ""
        rows.append([Cell(amount), Cell(f"{name}{many}")])
    return rows


def _record(state: MemoryState, path: str) -> FileRecord:
    return FileRecord(path=path, size_bytes=state.tree[path].size)


def _with_content(record: FileRecord, data: bytes) -> FileRecord:
    try:
        return msgspec.structs.replace(record, text=data.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(record, data=base64.b64encode(data).decode())


async def _bytes_of(bus: Bus, state: MemoryState, path: str) -> bytes:
    ref = state.tree.get(path)
    return b"" if ref is None else await bus.memories.get(state.scope, ref)
