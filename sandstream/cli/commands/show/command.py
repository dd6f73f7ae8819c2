"""``sandstream show``: one run: what it is, what happened when, what was said, what it has."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
from sandstream_actors.run_state import RunState
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import RunOptions, RunStarted
from sandstream_bus.subjects import RunId

from sandstream.cli.approval_texts import hint_texts
from sandstream.cli.conversation_blocks import ROLE_WIDTH, print_said
from sandstream.cli.event_lines import EventRecord, record_of
from sandstream.cli.event_texts import STATUS_STYLES, error_text, usage_text
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.finding import sandboxes_of
from sandstream.cli.masking import masked, masked_line
from sandstream.cli.render import (
    Screen,
    age,
    duration,
    pad,
    parse_time,
    seconds_between,
    size,
)
from sandstream.cli.sandboxes import STATE_STYLES, SandboxSummary, summary_of
from sandstream.cli.session import connected, not_found, put_json, run_async
from sandstream.cli.show_events import event_lines
from sandstream.cli.show_html import check_target, write_page
from sandstream.cli.show_plain import page_screen
from sandstream.cli.show_reading import Looked, look
from sandstream.cli.show_stored import look_in_store, summary_of_facts
from sandstream.cli.show_talk import talk
from sandstream.cli.trees import RunTree, open_approvals, read_logs, tree_of
from sandstream.cli.waterfall import waterfall_lines
from sandstream.client import Client
from sandstream.looking.page import page_html
from sandstream.looking.timeline import Row
from sandstream.settings import Settings
from sandstream.summaries import RunSummary, summarize

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
    spans: list[Row] = []
    """The rows of the waterfall: the run and those below it, messages folded into them."""


class _Found(msgspec.Struct, kw_only=True):
    """Everything about a run."""

    looked: Looked
    summary: RunSummary
    tree: RunTree
    events: list[LogEvent] = []
    sandboxes: list[SandboxSummary] = []


def main(arguments: argparse.Namespace) -> int:
    return run_async(_show(arguments), debug=arguments.debug)


async def _show(arguments: argparse.Namespace) -> int:
    target: str | None = arguments.html
    if target is not None:
        if arguments.json:
            raise CliError(Exit.USAGE, "--html writes a page and --json prints data: say one")
        check_target(target, force=arguments.force)
    async with connected() as client:
        found = await _find(client, arguments.run, contents=target is not None)
    if target is not None:
        looked = found.looked
        title = f"{found.summary.agent} · {arguments.run}"
        is_whole: bool = arguments.all
        html = page_html(looked.runs, title=title, now_ns=looked.now_ns, is_whole=is_whole)
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
        looked=await look(client.bus, logs, contents=contents),
        summary=summarize(RunId(run), events),
        tree=tree_of(run, logs),
        events=events,
        sandboxes=await _sandboxes(client, run, events),
    )


async def _find_in_store(client: Client, run: str) -> _Found:
    looked = await look_in_store(client.bus, Settings.from_env().home, run)
    if looked is None:
        raise await not_found(client, run)
    children = sum(it.facts.parent == run for it in looked.runs)
    summary = summary_of_facts(looked.facts, children)
    return _Found(looked=looked, summary=summary, tree=RunTree(summary=summary, steps=[]))


async def _sandboxes(client: Client, run: str, events: list[LogEvent]) -> list[SandboxSummary]:
    started = next((it.event for it in events if isinstance(it.event, RunStarted)), None)
    if started is None:
        return []
    return [summary_of(found) for found in await sandboxes_of(client.bus, run, started)]


def _plain(found: _Found) -> Shown:
    run = RunId(found.summary.run_id)
    drawn = found.looked.timeline()
    return Shown(
        summary=found.summary,
        conversation=_items(run, found.events),
        events=[record_of(run, event) for event in found.events],
        sandboxes=found.sandboxes,
        tree=found.tree,
        trace_id=drawn.trace_id,
        spans=drawn.rows,
    )


def _items(run: RunId, events: list[LogEvent]) -> list[Any]:
    state = RunState.of(run, events)
    if state.started is None:
        return []
    return [msgspec.json.decode(item) for item in state.own_input + state.said]


# --- printing -------------------------------------------------------------------------------------


def _print(screen: Screen, found: _Found, arguments: argparse.Namespace) -> None:
    run = found.summary.run_id
    show_all: bool = arguments.all
    _print_summary(screen, found)
    _print_part(
        screen,
        "WATERFALL",
        waterfall_lines(screen, found.looked.timeline(), root=run, show_all=show_all),
    )
    if found.looked.is_from_store:
        lost = "the log has lost this run, and with it what was said: this is from the trace store"
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
    summary, known = found.summary, found.looked.facts
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
            ("below", _above(summary)),
            ("session", masked_line(summary.session)),
            ("memory", masked_line(summary.memory)),
            ("pool", summary.pool),
            ("key", masked_line(summary.key or "") if summary.key != summary.run_id else ""),
            ("started", f"{when} ({age(summary.started_at)} ago), took {took}{lost}"),
            ("turns", str(summary.turns)),
            ("tokens", usage_text(summary.usage)),
            ("retries", str(known.retries) if known.retries else ""),
            ("trace", known.trace_id),
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
    run = found.summary.run_id
    facts: list[tuple[str, str]] = []
    for sandbox in found.sandboxes:
        text = f"{sandbox.sandbox} "
        text += screen.paint(sandbox.state, STATE_STYLES.get(sandbox.state, ""))
        if sandbox.checkpoints:
            text += f", {size(sandbox.size_bytes)} saved: sandstream artifacts ls {run}"
        facts.append(("sandbox", text))
    if children := [it.facts.run for it in found.looked.runs if it.facts.parent == run]:
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
