"""``sandstream stats``: runs, tokens, times and failures, summed from the trace store."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sandstream_actors.tracing.catch_up import catch_up
from sandstream_actors.tracing.redaction import load_redactor
from sandstream_actors.tracing.store.errors import StoreCorrupt
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.stats_queries import CallStats, RunStats, TraceStats
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_actors.tracing.tracing_settings import REDACT
from sandstream_bus.counts import numbered
from sandstream_bus.environment import variable

from sandstream._inspect.texts import count, tokens_text
from sandstream.cli.exits import Exit
from sandstream.cli.grammar import Since
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.cli.terminal.progress import Progress
from sandstream.cli.terminal.render import (
    Cell,
    Column,
    Screen,
    duration,
    err,
    one_line,
    out,
    shorten,
    table,
)
from sandstream.client import Client
from sandstream.settings import Settings

_OF_RUNS = [
    Column("RUNS", ">"),
    Column("OK", ">"),
    Column("FAILED", ">"),
    Column("WAITING", ">", drops=4),
    Column("RUNNING", ">", drops=5),
    Column("TURNS", ">", drops=3),
    Column("RETRIES", ">", drops=2),
    Column("TAKEOVERS", ">", drops=2),
    Column("TOKENS IN", ">", drops=1),
    Column("OUT", ">", drops=1),
    Column("P50", ">"),
    Column("P95", ">"),
    Column("MAX", ">", drops=6),
]
_OF_MODELS = [
    Column("MODEL", shrinks=12),
    Column("CALLS", ">"),
    Column("ERRORS", ">"),
    Column("RETRIES", ">", drops=2),
    Column("ATTEMPTS", ">", drops=2),
    Column("TAKEOVERS", ">"),
    Column("TOKENS IN", ">", drops=1),
    Column("OUT", ">", drops=1),
    Column("P50", ">"),
    Column("P95", ">"),
    Column("MAX", ">", drops=4),
    Column("QUEUE P95", ">", drops=3),
]
_OF_TOOLS = [
    Column("TOOL", shrinks=12),
    Column("CALLS", ">"),
    Column("ERRORS", ">"),
    Column("ATTEMPTS", ">"),
    Column("TAKEOVERS", ">"),
    Column("P50", ">"),
    Column("P95", ">"),
    Column("MAX", ">", drops=2),
    Column("QUEUE P95", ">", drops=1),
]


def main(arguments: argparse.Namespace) -> int:
    return run_async(_sum_up(arguments), debug=arguments.debug)


async def _sum_up(arguments: argparse.Namespace) -> int:
    since: Since = arguments.since
    async with connected() as client, _opened(client) as store:
        try:
            stats, is_new = await _read(client, store, since, arguments.agent)
        except StoreCorrupt:  # what was found on reading is repaired on writing
            stats, is_new = await _read(client, store, since, arguments.agent)
        if store.replaced is not None:
            say(f"the trace store was damaged and is rebuilt; the damaged file is {store.replaced}")
    if arguments.json:
        put_json(stats)
    elif is_new:
        say('no runs yet; start one: sandstream run app.py "hello"')
    elif not (stats.total.runs or stats.models or stats.tools):
        say(_none_found(arguments.agent, since))
    else:
        _show(out(), stats, since, arguments.by)
    return Exit.OK


def _none_found(agent: str | None, since: Since) -> str:
    which = f" of agent {one_line(agent)}" if agent else ""
    if since.ns:
        return f"no runs{which} {since.words}; look further back: --since all"
    return f"no runs{which}; omit --agent to see all agents"


@asynccontextmanager
async def _opened(client: Client) -> AsyncIterator[TraceStore]:
    """This machine's store of the installation."""
    path = store_path(Settings.from_env().home, await installation_of(client.bus))
    store = await TraceStore.open(path)
    try:
        yield store
    finally:
        await store.close()


async def _read(
    client: Client, store: TraceStore, since: Since, agent: str | None
) -> tuple[TraceStats, bool]:
    """The sums, after the store has read the whole log; and whether there are no runs at all."""
    await store.retain(time.time_ns())
    redactor = load_redactor(variable(REDACT) or None)
    with Progress(err()) as progress:
        await catch_up(client.bus, store, progress=progress, redactor=redactor)
    stats = await store.stats(since.ns, agent=agent)
    return stats, not stats.total.runs and not await store.runs(limit=1)


# --- what is shown --------------------------------------------------------------------------------


def _show(screen: Screen, stats: TraceStats, since: Since, by: str | None) -> None:
    _show_total(screen, stats, since)
    names = [by] if by else ["agent", "model", "tool"]
    if by and not {"model": stats.models, "tool": stats.tools}.get(by, True):
        say(f"no calls of {by}s {since.words}".rstrip())
    if "agent" in names:
        agents = sorted(stats.agents, key=lambda it: (-it.runs, it.name))
        _show_table(screen, [Column("AGENT", shrinks=12), *_OF_RUNS], agents)
    if "day" in names:
        _show_table(screen, [Column("DAY"), *_OF_RUNS], stats.days)
    if "model" in names:
        _show_table(screen, _OF_MODELS, _most_called(stats.models))
    if "tool" in names:
        _show_table(screen, _OF_TOOLS, _most_called(stats.tools))


def _show_total(screen: Screen, stats: TraceStats, since: Since) -> None:
    total = stats.total
    parts = [
        (total.completed, "completed", "green"),
        (total.failed, "failed", "red"),
        (total.waiting, "waiting", "yellow"),
        (total.running, "running", ""),
    ]
    ends = ", ".join(screen.paint(f"{n} {word}", style) for n, word, style in parts if n)
    runs = screen.paint(numbered(total.runs, "run"), "bold")
    words = f" {since.words}" if since.words else ""
    screen.line(f"{runs}{words}: {ends}" if ends else f"{runs}{words}")
    screen.line(f"{tokens_text(total.input_tokens)} in, {count(total.output_tokens)} out")
    trouble = [
        numbered(total.retries, "retry", "retries") if total.retries else "",
        numbered(total.takeovers, "takeover") if total.takeovers else "",
    ]
    if told := ", ".join(filter(None, trouble)):
        screen.line(screen.paint(told, "yellow"))
    if stats.failures:
        found = ", ".join(f"{name} {number}" for name, number in stats.failures.items())
        screen.line(screen.paint("failures: ", "dim") + _fitting(screen, found))


def _fitting(screen: Screen, text: str) -> str:
    return shorten(one_line(text), max(20, screen.width - len("failures: ")))


def _most_called(found: Sequence[CallStats]) -> list[CallStats]:
    return sorted(found, key=lambda it: (-it.calls, it.name))


def _show_table(
    screen: Screen, columns: Sequence[Column], found: Sequence[RunStats | CallStats]
) -> None:
    if not found:
        return
    hidden = _hidden(found)
    shown = [it for it in columns if it.title not in hidden]
    cells = [_cells(it) for it in found]
    rows = [[cell.get(it.title) or cell["NAME"] for it in shown] for cell in cells]
    screen.line()
    for line in table(screen, shown, rows):
        screen.line(line)


def _hidden(found: Sequence[RunStats | CallStats]) -> set[str]:
    """The columns of problems that did not occur; they are hidden."""
    hidden: set[str] = set()
    if not any(it.retries for it in found):
        hidden.add("RETRIES")
    if not any(it.takeovers for it in found):
        hidden.add("TAKEOVERS")
    if not any(isinstance(it, CallStats) and it.attempts > it.calls for it in found):
        hidden.add("ATTEMPTS")
    return hidden


def _cells(stats: RunStats | CallStats) -> dict[str, Cell]:
    """By the titles of their columns."""
    cells = {
        "NAME": Cell(stats.name or "-"),
        "RETRIES": _trouble(stats.retries),
        "TAKEOVERS": _trouble(stats.takeovers),
        "TOKENS IN": Cell(count(stats.input_tokens)),
        "OUT": Cell(count(stats.output_tokens)),
    }
    if isinstance(stats, RunStats):
        timed = stats.completed + stats.failed
        cells |= {
            "RUNS": Cell(str(stats.runs)),
            "OK": Cell(_number(stats.completed)),
            "FAILED": _trouble(stats.failed, "red"),
            "WAITING": _trouble(stats.waiting),
            "RUNNING": Cell(_number(stats.running)),
            "TURNS": Cell(_number(stats.turns)),
        }
    else:
        timed = stats.calls - stats.errors
        cells |= {
            "CALLS": Cell(str(stats.calls)),
            "ERRORS": _trouble(stats.errors, "red"),
            "ATTEMPTS": Cell(str(stats.attempts)),
            "QUEUE P95": _time(stats.queue.p95_ns, stats.calls),
        }
    latency = stats.latency
    times = zip(
        ("P50", "P95", "MAX"), (latency.p50_ns, latency.p95_ns, latency.max_ns), strict=True
    )
    return cells | {title: _time(it, timed) for title, it in times}


def _trouble(number: int, style: str = "yellow") -> Cell:
    return Cell(_number(number), style if number else "")


def _number(number: int) -> str:
    """The number; a dot for zero, so that other values stand out."""
    return str(number) if number else "·"


def _time(ns: int, of: int) -> Cell:
    return Cell(duration(ns / 1e9 if of else None), "dim")
