"""``sandstream sandboxes``: what sandboxes there are and what happened to them. The actions that
change something are in modules of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, assert_never

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.wire.sandboxes import (
    SandboxCheckpointed,
    SandboxDeleted,
    SandboxEvent,
    SandboxIntended,
    SandboxLost,
    SandboxMounted,
    SandboxPaused,
    SandboxReady,
    SandboxStopped,
)
from sandstream_providers import registry
from sandstream_providers.interface import BoxInfo

from sandstream.cli.commands.sandboxes.vendors import boxes_at_vendors
from sandstream.cli.exits import Exit
from sandstream.cli.sandbox_choice import FoundSandbox, sandbox_named
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.cli.terminal.conversation_blocks import wrapped
from sandstream.cli.terminal.render import (
    Cell,
    Column,
    Row,
    Screen,
    age,
    clean,
    clock,
    duration,
    one_line,
    out,
    pad,
    size,
    table,
)
from sandstream.client import Client

STATE_STYLES = {
    "intended": "cyan",
    "ready": "green",
    "paused": "yellow",
    "stopped": "",
    "lost": "red",
    "deleted": "dim",
    "orphan": "red",
}
_LOG_MARGIN = 22
"""A clock, a label and the gaps."""
_COLUMNS = [
    Column("SANDBOX"),
    Column("STATE"),
    Column("PROVIDER", shrinks=12, drops=6),
    Column("NODE", shrinks=12, drops=5),
    Column("AGENT", shrinks=8, drops=3),
    Column("RUN", shrinks=12, drops=9),
    Column("GEN", ">", drops=8),
    Column("CHANGED", ">", drops=4),
    Column("SAVED", ">", drops=7),
    Column("SIZE", ">", drops=2),
]


class SandboxSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One sandbox as ``--json`` prints it."""

    sandbox: str
    state: str
    provider: str
    node: str
    generation: int
    changed_at: str
    agent: str = ""
    run_id: str = ""
    root: str = ""
    reason: str = ""
    """Why it was stopped, lost or deleted."""
    checkpoints: int = 0
    checkpoint: str = ""
    """The last one."""
    files: int = 0
    size_bytes: int = 0
    ports: list[int] = []
    network: str = "none"
    image: str = ""
    """Of a container."""
    box_id: str = ""
    """The vendor's own id of the box."""
    box_state: str = ""
    """Of the box at the vendor, or ``gone``; empty if the vendor was not asked."""
    box_since: str = ""
    """When the vendor made the box."""


class EventRecord(msgspec.Struct, kw_only=True):
    """One event of a sandbox's log."""

    sequence: int
    time: str
    event: SandboxEvent


class Shown(msgspec.Struct, kw_only=True):
    """What ``show --json`` prints."""

    summary: SandboxSummary
    events: list[EventRecord]


def main(arguments: argparse.Namespace) -> int:
    return run_async(_work(arguments), debug=arguments.debug)


async def _work(arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "show":
            return await _show(arguments)
        case "rm":
            from sandstream.cli.commands.sandboxes.rm import remove

            return await remove(arguments)
        case "exec":
            from sandstream.cli.commands.sandboxes.exec import execute

            return await execute(arguments)
        case "reap":
            from sandstream.cli.commands.sandboxes.reap import reap

            return await reap(arguments)
        case _:
            return await _list(arguments)


def summary_of(found: FoundSandbox) -> SandboxSummary:
    record = found.record
    last = found.checkpoints[-1] if found.checkpoints else None
    return SandboxSummary(
        sandbox=found.id,
        state=record.state,
        provider=record.provider,
        node=record.node,
        generation=record.generation,
        changed_at=record.changed_at,
        agent=record.spec.agent,
        run_id=record.spec.run,
        root=record.root,
        reason=record.reason if record.state in ("stopped", "lost", "deleted") else "",
        checkpoints=record.checkpoints,
        checkpoint=record.tree,
        files=last.files if last else 0,
        size_bytes=last.size_bytes if last else 0,
        ports=record.spec.ports,
        network=record.spec.network,
        image=str(record.spec.options.get("image", "")),
        box_id=record.box_id if record.is_live else "",
    )


# --- the list -------------------------------------------------------------------------------------


async def _list(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await _all(client)
        found = [*_orphans(found, boxes := await boxes_at_vendors(client.bus)), *found]
    for summary in found:
        _add_box(summary, boxes)
    deleted = [one for one in found if one.state == "deleted"]
    shown = found if arguments.all else [one for one in found if one.state != "deleted"]
    if arguments.json:
        for summary in shown:
            put_json(summary)
        return Exit.OK
    if not shown:
        more = f" ({len(deleted)} deleted: --all)" if deleted else ""
        say(f"no sandboxes{more}; agents get them as they run: sandstream run coder.py")
        return Exit.OK
    screen = out()
    if any(summary.box_id for summary in shown):
        columns = [*_COLUMNS[:4], Column("BOX", shrinks=8, drops=10), *_COLUMNS[4:]]
        rows = [_row(summary, has_boxes=True) for summary in shown]
    else:
        columns, rows = _COLUMNS, [_row(summary) for summary in shown]
    for line in table(screen, columns, rows):
        screen.line(line)
    return Exit.OK


def _add_box(summary: SandboxSummary, boxes: dict[str, list[BoxInfo]]) -> None:
    """Say what the vendor has."""
    if not summary.box_id or summary.provider not in boxes:
        return
    box = next((it for it in boxes[summary.provider] if it.vendor_id == summary.box_id), None)
    summary.box_state = "gone" if box is None else box.state
    summary.box_since = "" if box is None else _time(box)


def _orphans(
    known: list[SandboxSummary], boxes: dict[str, list[BoxInfo]]
) -> Iterator[SandboxSummary]:
    """Boxes at vendors that no sandbox uses any more, or yet."""
    used = {summary.box_id for summary in known}
    for provider, found in boxes.items():
        for box in found:
            if box.vendor_id not in used:
                yield SandboxSummary(
                    sandbox=box.labels.get("sandbox", box.key),
                    state="orphan",
                    provider=provider,
                    node="-",
                    generation=int(box.labels.get("generation", "0")),
                    changed_at=_time(box),
                    run_id=box.labels.get("run", ""),
                    box_id=box.vendor_id,
                )


def _time(box: BoxInfo) -> str:
    return datetime.fromtimestamp(box.created_at, UTC).isoformat()


async def _all(client: Client) -> list[SandboxSummary]:
    """What changed last first."""
    found = [
        summary_of(FoundSandbox(name, await client.bus.sandboxes.read(name)))
        for name in await client.bus.sandboxes.names()
    ]
    return sorted(found, key=lambda one: one.changed_at, reverse=True)


def _row(summary: SandboxSummary, *, has_boxes: bool = False) -> Row:
    """``has_boxes``: with the vendor's id."""
    return [
        Cell(summary.sandbox, "bold" if summary.state in ("ready", "paused") else ""),
        Cell(summary.state, STATE_STYLES.get(summary.state, "")),
        Cell(f"{summary.provider} {summary.image}".rstrip()),
        Cell(summary.node, "dim"),
        *([Cell(f"{summary.box_id or '-'} {summary.box_state}".rstrip())] if has_boxes else []),
        Cell(summary.agent or "-"),
        Cell(summary.run_id or "-", "dim"),
        Cell(str(summary.generation)),
        Cell(age(summary.changed_at), "dim"),
        Cell(str(summary.checkpoints)),
        Cell(size(summary.size_bytes) if summary.checkpoints else "-"),
    ]


# --- one of them ----------------------------------------------------------------------------------


async def _show(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await sandbox_named(client, arguments.id)
    summary = summary_of(found)
    if arguments.json:
        records = [
            EventRecord(sequence=it.sequence, time=it.time, event=it.event) for it in found.events
        ]
        put_json(Shown(summary=summary, events=records))
        return Exit.OK
    screen = out()
    _print_facts(screen, summary)
    screen.line()
    screen.line(screen.paint("LOG", "dim"))
    for event in found.events:
        label, text, style = told(event.event)
        line = f"{screen.paint(clock(event.time), 'dim')}  {screen.paint(pad(label, 10), style)}"
        first, *more = wrapped(one_line(text), max(20, screen.width - _LOG_MARGIN), 0)[0]
        screen.line(f"{line}  {first}".rstrip())
        for rest in more:
            screen.line(f"{' ' * _LOG_MARGIN}{rest}")
    if found.record.tree:
        say(f"its files: sandstream artifacts ls {found.id}")
    return Exit.OK


def _print_facts(screen: Screen, summary: SandboxSummary) -> None:
    state = screen.paint(summary.state, f"bold {STATE_STYLES.get(summary.state, '')}".strip())
    saved = ""
    if summary.checkpoints:
        where = clean(summary.checkpoint[:12])
        saved = f"{numbered(summary.files, 'file')}, {size(summary.size_bytes)} in {where}"
    facts = [
        ("sandbox", screen.paint(summary.sandbox, "bold")),
        ("state", state + (f" ({clean(summary.reason)})" if summary.reason else "")),
        ("where", clean(f"provider {summary.provider}, node {summary.node}")),
        ("agent", clean(summary.agent)),
        ("run", clean(summary.run_id)),
        ("image", clean(summary.image)),
        ("box", clean(summary.box_id)),
        ("root", clean(summary.root)),
        ("network", _network(summary)),
        ("ports", ", ".join(map(str, summary.ports))),
        ("saved", saved),
    ]
    for name, value in facts:
        if value:
            screen.line(screen.paint(pad(name, 10), "dim") + value)


def _network(summary: SandboxSummary) -> str:
    if summary.network != "host":
        return clean(summary.network)
    is_known = summary.provider in registry.names()
    is_hosted = is_known and not registry.find(summary.provider).owns_boxes
    return "the vendor's" if is_hosted else "the host's"


def told(event: SandboxEvent) -> tuple[str, str, str]:
    """A label, what happened, and the label's style."""
    match event:
        case SandboxIntended():
            return "make", f"generation {event.generation} on node {event.node}", "cyan"
        case SandboxReady():
            base = f", from checkpoint {event.restored[:12]}" if event.restored else ""
            box = f" in {event.box_id}" if event.box_id else ""
            return "ready", f"at {event.root}{box}{base}{_took(event)}", "green"
        case SandboxCheckpointed():
            files = numbered(event.files, "file")
            amount = f"{files}, {size(event.size_bytes)}, {size(event.new_bytes)} new"
            why = f" · {event.reason}" if event.reason else ""
            return "checkpoint", f"{event.tree[:12]} · {amount}{why}{_took(event)}", "magenta"
        case SandboxPaused():
            kept = "; kept for a later session" if event.kept else ""
            return "paused", f"{event.reason}{kept}", "yellow"
        case SandboxMounted():
            return "memory", f"{event.memory.scope} at {event.memory.memories_dir}", "cyan"
        case SandboxStopped():
            return "stopped", event.reason, "blue"
        case SandboxLost():
            kept = "can be restored" if event.restorable else "nothing to restore it from"
            return "lost", f"{event.reason}; {kept}", "red"
        case SandboxDeleted():
            return "deleted", event.reason, "dim"
        case _:
            assert_never(event)


def _took(event: Any) -> str:
    return f" · {duration(event.duration_ms / 1000)}" if event.duration_ms else ""
