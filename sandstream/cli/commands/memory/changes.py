"""``sandstream memory undo`` and ``rm``: changes of a memory that a person makes."""

from __future__ import annotations

import argparse

import msgspec
from sandstream_actors.memory import changes
from sandstream_bus.counts import numbered
from sandstream_bus.wire.memories import MemoryState

from sandstream.cli.commands.approvals.decisions import decider
from sandstream.cli.commands.memory.diff import change_text
from sandstream.cli.commands.memory.scopes import (
    check_run,
    memory_named,
    revision_named,
    rollout_named,
    short_path,
    summary_of,
)
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import connected, put_json, say
from sandstream.cli.terminal.confirmation import confirm
from sandstream.cli.terminal.render import one_line, out, size

_MARKS = (("added", "A", "green"), ("changed", "M", "yellow"), ("removed", "D", "red"))


class Changed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``--json`` prints of a change."""

    scope: str
    revision: int
    added: list[str] = []
    changed: list[str] = []
    removed: list[str] = []
    runs: list[str] = []
    """Those that were forgotten."""


# --- undo -----------------------------------------------------------------------------------------


async def undo(arguments: argparse.Namespace) -> int:
    by = decider(arguments.by)
    async with connected() as client:
        before = await memory_named(client, arguments.scope)
        if arguments.revision is not None:
            revision_named(before, arguments.revision)
        try:
            undone = await changes.undo(client.bus, before.scope, arguments.revision, by)
        except changes.NotInMemory as error:
            raise CliError(Exit.NOT_FOUND, one_line(str(error))) from None
        except changes.TooBig as error:
            raise CliError(Exit.FAILED, one_line(str(error))) from None
        after = (await client.bus.memories.read(before.scope)).state
    told = _changed(before, after)
    _tell(told, as_json=arguments.json)
    if not (told.added or told.changed or told.removed):
        say("nothing of that change remained to undo")
    say(f"{change_text(undone)}; it can be undone, too")
    return Exit.OK


# --- rm -------------------------------------------------------------------------------------------


async def remove(arguments: argparse.Namespace) -> int:
    by = decider(arguments.by)
    async with connected() as client:
        before = await memory_named(client, arguments.scope)
        name = one_line(before.scope)
        if arguments.run is None and arguments.rollout is None:
            await _confirm(arguments, f"forget all of memory {name} ({_amount(before)})? for good")
            await changes.delete_scope(client.bus, before.scope)
            told = Changed(
                scope=before.scope,
                revision=before.revision,
                removed=sorted(before.tree),
                runs=[run for it in before.rollouts.values() for run in it.runs],
            )
            if arguments.json:
                put_json(told)
            say(f"forgotten: memory {name} ({_amount(before)})")
            return Exit.OK
        if arguments.run is not None:
            check_run(before, arguments.run)
            what, part = f"run {arguments.run}", {"runs": [arguments.run]}
        else:
            rollout = _rollout(before, arguments.rollout)
            what, part = f"rollout {one_line(rollout)}", {"rollouts": [rollout]}
        derived = "and what was derived from it"
        await _confirm(arguments, f"forget {what} of memory {name}, {derived}? for good")
        runs = await changes.remove(client.bus, before.scope, by=by, **part)
        after = (await client.bus.memories.read(before.scope)).state
    _tell(_changed(before, after, runs), as_json=arguments.json)
    say(f"forgotten: {what} of memory {name}, {derived}")
    return Exit.OK


def _rollout(state: MemoryState, name: str) -> str:
    """Its id; also of one whose removal was interrupted."""
    if state.unfinished is not None and name in state.unfinished.rollouts:
        return name
    return rollout_named(state, name).id


def _amount(state: MemoryState) -> str:
    summary = summary_of(state)
    rollouts, files = numbered(summary.rollouts, "rollout"), numbered(summary.files, "file")
    return f"{rollouts}, {files}, {size(summary.size_bytes)}"


async def _confirm(arguments: argparse.Namespace, question: str) -> None:
    if not arguments.yes:
        await confirm(question, to_do="forget it", otherwise="nothing was forgotten")


# --- what changed ---------------------------------------------------------------------------------


def _changed(before: MemoryState, after: MemoryState, runs: list[str] | None = None) -> Changed:
    old, new = before.tree, after.tree
    return Changed(
        scope=after.scope,
        revision=after.revision,
        added=sorted(new.keys() - old.keys()),
        changed=sorted(it for it in new.keys() & old.keys() if new[it] != old[it]),
        removed=sorted(old.keys() - new.keys()),
        runs=runs or [],
    )


def _tell(changed: Changed, *, as_json: bool) -> None:
    if as_json:
        put_json(changed)
        return
    screen = out()
    for name, mark, style in _MARKS:
        for path in getattr(changed, name):
            screen.line(screen.paint(f"{mark} {one_line(short_path(path))}", style))
