"""``sandstream show``: one run: what it is, what was said, what happened."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
from sandstream_actors.run_state import RunState
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import (
    CallFinished,
    CallRequested,
    CallStarted,
    RunEvent,
    RunStarted,
)
from sandstream_bus.subjects import RunId

from sandstream.cli.approval_texts import hint_texts
from sandstream.cli.conversation_blocks import ROLE_WIDTH, print_items
from sandstream.cli.event_lines import EventRecord, record_of
from sandstream.cli.event_texts import (
    STATUS_STYLES,
    error_text,
    usage_text,
)
from sandstream.cli.exits import Exit
from sandstream.cli.finding import sandboxes_of
from sandstream.cli.render import (
    Cell,
    Column,
    Screen,
    age,
    clean,
    clock,
    duration,
    out,
    pad,
    parse_time,
    seconds_between,
    size,
    table,
)
from sandstream.cli.sandboxes import STATE_STYLES, SandboxSummary, summary_of
from sandstream.cli.session import connected, events_of, put_json, run_async
from sandstream.cli.tree_lines import tree_lines
from sandstream.cli.trees import RunTree, open_approvals, read_logs, tree_of
from sandstream.client import Client
from sandstream.summaries import RunSummary, summarize

_EVENTS = [
    Column("SEQ", ">"),
    Column("TIME", drops=1),
    Column("+", ">"),
    Column("KIND"),
    Column("ABOUT", shrinks=12),
    Column("SUBJECT", shrinks=8, drops=2),
]


class Shown(msgspec.Struct, kw_only=True):
    """What ``--json`` prints."""

    summary: RunSummary
    conversation: list[Any]
    events: list[EventRecord]
    sandboxes: list[SandboxSummary]
    tree: RunTree


def main(arguments: argparse.Namespace) -> int:
    return run_async(_show(arguments), debug=arguments.debug)


async def _show(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        events = await events_of(client, arguments.run)
        sandboxes = await _sandboxes(client, arguments.run, events)
        tree = tree_of(arguments.run, await read_logs(client.bus, arguments.run, events))
    run = RunId(arguments.run)
    summary = summarize(run, events)
    items = _conversation(run, events)
    if arguments.json:
        records = [record_of(run, event) for event in events]
        put_json(
            Shown(
                summary=summary,
                conversation=items,
                events=records,
                sandboxes=sandboxes,
                tree=tree,
            )
        )
        return Exit.OK
    screen = out()
    _print_summary(screen, summary)
    for sandbox in sandboxes:
        style = STATE_STYLES.get(sandbox.state, "")
        text = f"{sandbox.sandbox} {screen.paint(sandbox.state, style)}"
        if sandbox.checkpoints:
            text += f", {size(sandbox.size_bytes)} saved: sandstream artifacts ls {summary.run_id}"
        screen.line(screen.paint(pad("sandbox", ROLE_WIDTH), "dim") + text)
    _print_hints(screen, tree)
    if below := tree_lines(screen, tree):
        screen.line()
        for line in below:
            screen.line(line)
    if items:
        screen.line()
        screen.line(screen.paint("CONVERSATION", "dim"))
        print_items(screen, items)
    screen.line()
    screen.line(screen.paint("EVENTS", "dim"))
    _print_events(screen, events)
    return Exit.OK


async def _sandboxes(client: Client, run: str, events: list[LogEvent]) -> list[SandboxSummary]:
    started = next((it.event for it in events if isinstance(it.event, RunStarted)), None)
    if started is None:
        return []
    return [summary_of(found) for found in await sandboxes_of(client.bus, run, started)]


def _conversation(run: RunId, events: list[LogEvent]) -> list[Any]:
    state = RunState.of(run, events)
    if state.started is None:
        return []
    return [msgspec.json.decode(item) for item in state.own_input + state.said]


def _print_hints(screen: Screen, tree: RunTree) -> None:
    """How to answer what the run, or one below it, waits for."""
    for text in hint_texts(open_approvals(tree), tree.summary.run_id):
        screen.line(screen.paint(pad("answer", ROLE_WIDTH), "dim") + text)


# --- summary --------------------------------------------------------------------------------------


def _print_summary(screen: Screen, summary: RunSummary) -> None:
    status = screen.paint(
        summary.status.replace("_", " "), f"bold {STATUS_STYLES.get(summary.status, '')}".strip()
    )
    if not summary.is_over:
        status += f" ({clean(summary.step)})"
    took = duration(seconds_between(summary.started_at, summary.ended_at))
    start = parse_time(summary.started_at)
    when = start.astimezone().strftime("%Y-%m-%d %H:%M:%S") if start else "-"
    facts = [
        ("run", screen.paint(summary.run_id, "bold")),
        ("status", status),
        ("agent", clean(summary.agent)),
        ("below", f"{summary.parent}, at the top {summary.root}" if summary.parent else ""),
        ("session", clean(summary.session)),
        ("pool", summary.pool),
        ("key", clean(summary.key) if summary.key and summary.key != summary.run_id else ""),
        ("started", f"{when} ({age(summary.started_at)} ago), took {took}"),
        ("turns", str(summary.turns)),
        ("children", str(summary.children) if summary.children else ""),
        ("tokens", usage_text(summary.usage)),
        ("error", screen.paint(clean(error_text(summary.error)), "red") if summary.error else ""),
    ]
    for name, value in facts:
        if value:
            screen.line(screen.paint(pad(name, ROLE_WIDTH), "dim") + value)


# --- events ---------------------------------------------------------------------------------------


def _print_events(screen: Screen, events: list[LogEvent]) -> None:
    first = events[0].stored.time
    prefix = events[0].subject.partition(".run.")[0] + ".run."
    names: dict[str, str] = {}
    rows = [
        [
            Cell(str(event.sequence)),
            Cell(clock(event.stored.time), "dim"),
            Cell(duration(seconds_between(first, event.stored.time)), "dim"),
            Cell(str(event.event.__struct_config__.tag)),
            Cell(_about(event.event, names)),
            Cell(event.subject.removeprefix(prefix).partition(".")[2], "dim"),
        ]
        for event in events
    ]
    for line in table(screen, _EVENTS, rows):
        screen.line(line)


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
