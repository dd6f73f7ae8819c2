"""``sandstream stats``: runs, tokens, times and failures, summed from the trace store."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from sandstream_actors.tracing.catch_up import catch_up
from sandstream_actors.tracing.redaction import load_redactor
from sandstream_actors.tracing.store.errors import StoreCorrupt
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.stats_queries import CallStats, Latency, RunStats, TraceStats
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_actors.tracing.tracing_settings import REDACT

from sandstream.cli.exits import Exit
from sandstream.cli.parser_stats import Since
from sandstream.cli.render import (
    Cell,
    Column,
    Row,
    Screen,
    count,
    duration,
    err,
    one_line,
    out,
    shorten,
    table,
)
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.client import Client
from sandstream.settings import Settings

T = TypeVar("T")
_QUIET_S = 1.0
"""Reading the log is told only if it takes longer."""
_OF_RUNS = [
    Column("RUNS", ">"),
    Column("OK", ">"),
    Column("FAILED", ">"),
    Column("WAITING", ">", drops=4),
    Column("RUNNING", ">", drops=5),
    Column("TURNS", ">", drops=3),
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
            say(f"the trace store was damaged, and is built again; it was put to {store.replaced}")
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
    return f"no runs{which}; without --agent you see which agents there are"


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
    """The sums, once the store has everything that the log has; and whether there is nothing."""
    await store.retain(time.time_ns())
    redactor = load_redactor(os.environ.get(REDACT))
    with _Progress(err()) as progress:
        await catch_up(client.bus, store, progress=progress, redactor=redactor)
    stats = await store.stats(since.ns, agent=agent)
    return stats, not stats.total.runs and not await store.runs(limit=1)


class _Progress:
    """How far the log was read: one line that is drawn again, or said once without a terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._began = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, reached: int, last: int) -> None:
        if time.monotonic() - self._began < _QUIET_S:
            return
        text = f"reading the log: {100 * reached // max(last, 1)} %"
        if self._screen.is_terminal:
            self._screen.stream.write(f"\r{text}\x1b[K")
            self._screen.stream.flush()
        elif not self._is_shown:
            say("reading the log")
        self._is_shown = True

    def __exit__(self, *exc: object) -> None:
        if self._is_shown and self._screen.is_terminal:
            self._screen.stream.write("\r\x1b[K")
            self._screen.stream.flush()


# --- what is shown --------------------------------------------------------------------------------


def _show(screen: Screen, stats: TraceStats, since: Since, by: str | None) -> None:
    _show_total(screen, stats, since)
    names = [by] if by else ["agent", "model", "tool"]
    if by and not {"model": stats.models, "tool": stats.tools}.get(by, True):
        say(f"no calls of {by}s {since.words}".rstrip())
    if "agent" in names:
        agents = sorted(stats.agents, key=lambda it: (-it.runs, it.name))
        _show_table(screen, [Column("AGENT", shrinks=12), *_OF_RUNS], agents, _run_row)
    if "day" in names:
        _show_table(screen, [Column("DAY"), *_OF_RUNS], stats.days, _run_row)
    if "model" in names:
        _show_table(screen, _OF_MODELS, _most_called(stats.models), _model_row)
    if "tool" in names:
        _show_table(screen, _OF_TOOLS, _most_called(stats.tools), _tool_row)


def _show_total(screen: Screen, stats: TraceStats, since: Since) -> None:
    total = stats.total
    parts = [
        (total.completed, "completed", "green"),
        (total.failed, "failed", "red"),
        (total.waiting, "waiting", "yellow"),
        (total.running, "running", ""),
    ]
    ends = ", ".join(screen.paint(f"{n} {word}", style) for n, word, style in parts if n)
    runs = screen.paint(f"{total.runs} {'run' if total.runs == 1 else 'runs'}", "bold")
    words = f" {since.words}" if since.words else ""
    screen.line(f"{runs}{words}: {ends}" if ends else f"{runs}{words}")
    screen.line(f"{count(total.input_tokens)} tokens in, {count(total.output_tokens)} out")
    if stats.failures:
        found = ", ".join(f"{name} {number}" for name, number in stats.failures.items())
        screen.line(screen.paint("failures: ", "dim") + _fitting(screen, found))


def _fitting(screen: Screen, text: str) -> str:
    return shorten(one_line(text), max(20, screen.width - len("failures: ")))


def _most_called(found: Sequence[CallStats]) -> list[CallStats]:
    return sorted(found, key=lambda it: (-it.calls, it.name))


def _show_table(
    screen: Screen,
    columns: Sequence[Column],
    found: Sequence[T],
    row: Callable[[T], Row],
) -> None:
    if not found:
        return
    screen.line()
    for line in table(screen, columns, [row(it) for it in found]):
        screen.line(line)


def _run_row(stats: RunStats) -> Row:
    latency = stats.latency
    return [
        Cell(stats.name or "-"),
        Cell(str(stats.runs)),
        Cell(_number(stats.completed)),
        Cell(_number(stats.failed), "red" if stats.failed else ""),
        Cell(_number(stats.waiting), "yellow" if stats.waiting else ""),
        Cell(_number(stats.running)),
        Cell(_number(stats.turns)),
        Cell(count(stats.input_tokens)),
        Cell(count(stats.output_tokens)),
        *(_time(it, stats.completed + stats.failed) for it in _three(latency)),
    ]


def _model_row(stats: CallStats) -> Row:
    return [
        Cell(stats.name or "-"),
        Cell(str(stats.calls)),
        Cell(_number(stats.errors), "red" if stats.errors else ""),
        Cell(_number(stats.retries), "yellow" if stats.retries else ""),
        Cell(count(stats.input_tokens)),
        Cell(count(stats.output_tokens)),
        *(_time(it, stats.calls - stats.errors) for it in _three(stats.latency)),
        _time(stats.queue.p95_ns, stats.calls),
    ]


def _tool_row(stats: CallStats) -> Row:
    return [
        Cell(stats.name or "-"),
        Cell(str(stats.calls)),
        Cell(_number(stats.errors), "red" if stats.errors else ""),
        *(_time(it, stats.calls - stats.errors) for it in _three(stats.latency)),
        _time(stats.queue.p95_ns, stats.calls),
    ]


def _three(latency: Latency) -> tuple[int, int, int]:
    return latency.p50_ns, latency.p95_ns, latency.max_ns


def _number(number: int) -> str:
    """Nothing where there is nothing: what is there is seen."""
    return str(number) if number else "·"


def _time(ns: int, of: int) -> Cell:
    return Cell(duration(ns / 1e9 if of else None), "dim")
