"""``sandstream sandboxes``: what sandboxes there are and what happened to them. The actions that
change something are in modules of their own.
"""

from __future__ import annotations

import argparse
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
    )


# --- the list -------------------------------------------------------------------------------------


async def _list(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await _all(client)
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
    for line in table(screen, _COLUMNS, [_row(summary) for summary in shown]):
        screen.line(line)
    return Exit.OK


async def _all(client: Client) -> list[SandboxSummary]:
    """What changed last first."""
    found = [
        summary_of(FoundSandbox(name, await client.bus.sandboxes.read(name)))
        for name in await client.bus.sandboxes.names()
    ]
    return sorted(found, key=lambda one: one.changed_at, reverse=True)


def _row(summary: SandboxSummary) -> Row:
    return [
        Cell(summary.sandbox, "bold" if summary.state in ("ready", "paused") else ""),
        Cell(summary.state, STATE_STYLES.get(summary.state, "")),
        Cell(f"{summary.provider} {summary.image}".rstrip()),
        Cell(summary.node, "dim"),
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
        ("root", clean(summary.root)),
        ("network", "the host's" if summary.network == "host" else clean(summary.network)),
        ("ports", ", ".join(map(str, summary.ports))),
        ("saved", saved),
    ]
    for name, value in facts:
        if value:
            screen.line(screen.paint(pad(name, 10), "dim") + value)


def told(event: SandboxEvent) -> tuple[str, str, str]:
    """A label, what happened, and the label's style."""
    match event:
        case SandboxIntended():
            return "make", f"generation {event.generation} on node {event.node}", "cyan"
        case SandboxReady():
            base = f", from checkpoint {event.restored[:12]}" if event.restored else ""
            return "ready", f"at {event.root}{base}{_took(event)}", "green"
        case SandboxCheckpointed():
            files = numbered(event.files, "file")
            amount = f"{files}, {size(event.size_bytes)}, {size(event.new_bytes)} new"
            why = f" · {event.reason}" if event.reason else ""
            return "checkpoint", f"{event.tree[:12]} · {amount}{why}{_took(event)}", "magenta"
        case SandboxPaused():
            return "paused", event.reason, "yellow"
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
