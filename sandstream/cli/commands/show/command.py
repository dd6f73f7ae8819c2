"""``sandstream show``: one run: what it is, what happened when, what was said, what it has."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import RunOptions, RunStarted
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.rows import EventRecord, RunTree, record_of
from sandstream._inspect.stored_traces import stored_tree, summary_of_facts
from sandstream._inspect.summaries import RunSummary, SummaryReader
from sandstream._inspect.texts import error_text, usage_text
from sandstream._inspect.timeline import Row
from sandstream._inspect.traces import TracedTree, trace_tree
from sandstream._inspect.trees import open_approvals, read_logs, tree_of
from sandstream._inspect.workers import WorkerSummary, workers_of
from sandstream._page.page import page_html
from sandstream.cli.commands.approvals.texts import hint_texts
from sandstream.cli.commands.sandboxes.command import STATE_STYLES, SandboxSummary, summary_of
from sandstream.cli.commands.show.event_table import event_lines
from sandstream.cli.commands.show.page_file import check_target, write_page
from sandstream.cli.commands.show.plain_screen import page_screen
from sandstream.cli.commands.show.waterfall import waterfall_lines
from sandstream.cli.commands.show.workers import worker_lines
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.sandbox_choice import sandboxes_of
from sandstream.cli.session import connected, not_found, put_json, run_async
from sandstream.cli.terminal.conversation_blocks import ROLE_WIDTH, print_said
from sandstream.cli.terminal.mask import masked, masked_line
from sandstream.cli.terminal.render import (
    Screen,
    age,
    duration,
    pad,
    parse_time,
    seconds_between,
    size,
)
from sandstream.cli.terminal.run_table import STATUS_STYLES
from sandstream.cli.terminal.talk import talk
from sandstream.client import Client
from sandstream.settings import Settings

_UNNAMED = RunOptions().workflow_name
_MOST_CHILDREN = 20
_MORE = ", … {} more: sandstream runs --tree"


class Shown(msgspec.Struct, kw_only=True):
    """What ``--json`` prints."""

    summary: RunSummary
    conversation: list[Any]
    events: list[EventRecord]
    sandboxes: list[SandboxSummary]
    tree: RunTree
    trace_id: str = ""
    retries: int = 0
    takeovers: int = 0
    workers: list[WorkerSummary] = []
    """The processes that worked on it and on the runs below it."""
    spans: list[Row] = []
    """The rows of the waterfall: the run and those below it, messages folded into them."""


class _Found(msgspec.Struct, kw_only=True):
    """Everything about a run."""

    traced: TracedTree
    tree: RunTree
    events: list[LogEvent] = []
    sandboxes: list[SandboxSummary] = []


def main(arguments: argparse.Namespace) -> int:
    return run_async(_show(arguments), debug=arguments.debug)


async def _show(arguments: argparse.Namespace) -> int:
    target: str | None = arguments.html
    if target is None and arguments.force:
        raise CliError(Exit.USAGE, "--force needs --html")
    if target is not None:
        if arguments.json:
            raise CliError(Exit.USAGE, "--html writes a page and --json prints data: say one")
        check_target(target, force=arguments.force)
    async with connected() as client:
        found = await _find(client, arguments.run, contents=target is not None)
    if target is not None:
        traced = found.traced
        title = f"{found.tree.summary.agent} · {arguments.run}"
        is_whole: bool = arguments.all
        html = page_html(traced.runs, title=title, now_ns=traced.now_ns, is_whole=is_whole)
        write_page(target, html)
    elif arguments.json:
        put_json(_plain(found))
    else:
        _print(page_screen(), found, arguments)
    return Exit.OK


# --- finding --------------------------------------------------------------------------------------


async def _find(client: Client, run: str, *, contents: bool) -> _Found:
    events = await client.events(run)
    if not events:
        return await _find_in_store(client, run)
    logs = await read_logs(client.bus, run, events)
    return _Found(
        traced=await trace_tree(client.bus, logs, contents=contents),
        tree=tree_of(run, logs),
        events=events,
        sandboxes=await _sandboxes(client, run, events),
    )


async def _find_in_store(client: Client, run: str) -> _Found:
    traced = await stored_tree(client.bus, Settings.from_env().home, run)
    if traced is None:
        raise await not_found(client, run)
    children = sum(it.facts.parent == run for it in traced.runs)
    summary = summary_of_facts(traced.facts, children)
    return _Found(traced=traced, tree=RunTree(summary=summary, steps=[]))


async def _sandboxes(client: Client, run: str, events: list[LogEvent]) -> list[SandboxSummary]:
    started = next((it.event for it in events if isinstance(it.event, RunStarted)), None)
    if started is None:
        return []
    return [summary_of(found) for found in await sandboxes_of(client.bus, run, started)]


def _plain(found: _Found) -> Shown:
    run = RunId(found.tree.summary.run_id)
    drawn = found.traced.timeline()
    return Shown(
        summary=found.tree.summary,
        conversation=SummaryReader(run, found.events).items,
        events=[record_of(run, event) for event in found.events],
        sandboxes=found.sandboxes,
        tree=found.tree,
        trace_id=drawn.trace_id,
        retries=found.traced.facts.retries,
        takeovers=found.traced.facts.takeovers,
        workers=workers_of(drawn),
        spans=drawn.rows,
    )


# --- printing -------------------------------------------------------------------------------------


def _print(screen: Screen, found: _Found, arguments: argparse.Namespace) -> None:
    run = found.tree.summary.run_id
    show_all: bool = arguments.all
    _print_summary(screen, found)
    drawn = found.traced.timeline()
    lines = waterfall_lines(screen, drawn, root=run, show_all=show_all)
    _print_part(screen, "WATERFALL", lines)
    if workers := worker_lines(screen, workers_of(drawn)):
        _print_part(screen, "PROCESSES", workers)
    if found.traced.is_from_store:
        lost = "the log no longer has this run: this is from the trace store, without messages"
        _print_part(screen, "CONVERSATION", [screen.paint(lost, "yellow")])
    elif said := talk(run, found.events):
        _print_part(screen, "CONVERSATION", [])
        print_said(screen, said, show_all=show_all)
    _print_belongings(screen, found)
    if arguments.events and found.events:
        _print_part(screen, "EVENTS", event_lines(screen, found.events))


def _print_part(screen: Screen, title: str, lines: list[str]) -> None:
    screen.line()
    screen.line(screen.paint(title, "dim"))
    for line in lines:
        screen.line(line)


def _print_facts(screen: Screen, facts: list[tuple[str, str]]) -> None:
    for name, value in facts:
        if value:
            screen.line(screen.paint(pad(name, ROLE_WIDTH), "dim") + value)


def _print_summary(screen: Screen, found: _Found) -> None:
    summary, known = found.tree.summary, found.traced.facts
    status = screen.paint(
        summary.status.replace("_", " "), f"bold {STATUS_STYLES.get(summary.status, '')}".strip()
    )
    if not summary.is_over:
        status += f" ({masked(summary.step)})"
    took = duration(seconds_between(summary.started_at, summary.ended_at))
    start = parse_time(summary.started_at)
    when = start.astimezone().strftime("%Y-%m-%d %H:%M:%S") if start else "-"
    lost = ", its beginning is lost" if known.truncated else ""
    _print_facts(
        screen,
        [
            ("run", screen.paint(summary.run_id, "bold")),
            ("status", status),
            ("agent", masked_line(summary.agent)),
            ("model", masked_line(known.model)),
            ("workflow", "" if known.workflow == _UNNAMED else masked_line(known.workflow)),
            ("below", masked_line(_above(summary))),
            ("session", masked_line(summary.session)),
            ("memory", masked_line(summary.memory)),
            ("pool", masked_line(summary.pool)),
            ("key", masked_line(summary.key or "") if summary.key != summary.run_id else ""),
            ("started", f"{when} ({age(summary.started_at)} ago), took {took}{lost}"),
            ("turns", str(summary.turns)),
            ("tokens", usage_text(summary.usage)),
            ("retries", str(known.retries) if known.retries else ""),
            ("takeovers", str(known.takeovers) if known.takeovers else ""),
            ("trace", masked_line(known.trace_id)),
            (
                "error",
                screen.paint(masked(error_text(summary.error)), "red") if summary.error else "",
            ),
        ],
    )


def _above(summary: RunSummary) -> str:
    """The run that started this one, and the top of the tree if that is yet another one."""
    if summary.root in ("", summary.parent):
        return summary.parent
    return f"{summary.parent}, at the top {summary.root}"


def _print_belongings(screen: Screen, found: _Found) -> None:
    """What the run has, and how to answer what it, or one below it, waits for."""
    run = found.tree.summary.run_id
    facts: list[tuple[str, str]] = []
    for sandbox in found.sandboxes:
        text = f"{sandbox.sandbox} "
        text += screen.paint(sandbox.state, STATE_STYLES.get(sandbox.state, ""))
        if sandbox.checkpoints:
            text += f", {size(sandbox.size_bytes)} saved: sandstream artifacts ls {run}"
        facts.append(("sandbox", text))
    if children := [it.facts.run for it in found.traced.runs if it.facts.parent == run]:
        facts.append(("children", _named(children, screen.width - ROLE_WIDTH)))
    for text in hint_texts(open_approvals(found.tree), run):
        facts.append(("answer", text))
    if facts:
        screen.line()
        _print_facts(screen, facts)


def _named(runs: list[str], width: int) -> str:
    """How many they are, and as many of their names as fit."""
    text = f"{len(runs)}: {runs[0]}"
    for number, run in enumerate(runs[1:], start=1):
        rest = _MORE.format(len(runs) - number)
        after = _MORE.format(len(runs) - number - 1) if number + 1 < len(runs) else ""
        if number == _MOST_CHILDREN or len(f"{text}, {run}{after}") > width:
            return text + rest
        text += f", {run}"
    return text
