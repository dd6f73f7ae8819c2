"""Sums and percentiles over runs and spans, computed by SQLite."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sandstream_actors.tracing.store_link import StoreLink


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Of what has ended; percentiles are those of the nearest rank."""

    p50_ns: int = 0
    p95_ns: int = 0
    max_ns: int = 0


class RunStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The runs of one agent or of one day."""

    name: str
    """The agent that the runs began with, or the day."""
    runs: int = 0
    completed: int = 0
    failed: int = 0
    """Ended otherwise."""
    waiting: int = 0
    running: int = 0
    turns: int = 0
    retries: int = 0
    input_tokens: int = 0
    """Of its own model calls, whichever run they were for; of a day: of calls that began then."""
    output_tokens: int = 0
    latency: Latency = Latency()
    """From the start of a run to its end, waiting for people included."""


class CallStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The calls of one model or of one tool."""

    name: str
    calls: int = 0
    errors: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    latency: Latency = Latency()
    queue: Latency = Latency()
    """How long they had waited before somebody began."""


class TraceStats(msgspec.Struct, kw_only=True):
    since_ns: int
    total: RunStats
    failures: dict[str, int]
    """How often runs have ended in which way other than well: by error code, else by status."""
    agents: list[RunStats]
    days: list[RunStats]
    models: list[CallStats]
    tools: list[CallStats]


_DAY: Final = "date({} / 1000000000, 'unixepoch', 'localtime')"
_AGENT_OF_RUN: Final = "coalesce(nullif(first_agent, ''), agent)"


def _ranked(value: str, condition: str, part: str, as_: str) -> str:
    """Columns that say at which place of its group a row is, and how many are there."""
    window = f"PARTITION BY {part}, {condition}"
    return (
        f"{condition} AS {as_}_counts, {value} AS {as_}, "
        f"row_number() OVER ({window} ORDER BY {value}) AS {as_}_rank, "
        f"count(*) OVER ({window}) AS {as_}_of"
    )


def _percentiles(as_: str) -> str:
    def nearest(percent: int) -> str:
        rank = f"({as_}_of * {percent} + 99) / 100"
        return f"coalesce(max(CASE WHEN {as_}_counts AND {as_}_rank = {rank} THEN {as_} END), 0)"

    return f"{nearest(50)}, {nearest(95)}, coalesce(max(CASE WHEN {as_}_counts THEN {as_} END), 0)"


def run_sums(name: str, agent: str | None) -> str:
    """The query for runs, grouped by an expression."""
    took = _ranked("ended_ns - started_ns", "(is_over AND started_ns > 0)", "name", "took")
    only = f"AND {_AGENT_OF_RUN} = :agent" if agent is not None else ""
    return (
        "SELECT name, count(*), sum(status = 'completed'), "
        "sum(is_over AND status != 'completed'), sum(status = 'waiting'), "
        f"sum(status = 'running'), sum(turns), sum(retries), {_percentiles('took')} "
        f"FROM (SELECT *, {took} FROM (SELECT {name} AS name, status, is_over, turns, retries, "
        f"started_ns, ended_ns FROM runs WHERE started_ns >= :since {only})) "
        "GROUP BY name ORDER BY name"
    )


def call_sums(name: str, agent: str | None) -> str:
    """The query for the spans of one operation, grouped by an expression."""
    took = _ranked("end_ns - start_ns", "(error = '')", "name", "took")
    queued = _ranked("queued_ns", "1", "name", "queued")
    only = "AND agent = :agent" if agent is not None else ""
    return (
        "SELECT name, count(*), sum(error != ''), sum(retries), sum(input_tokens), "
        f"sum(output_tokens), {_percentiles('took')}, {_percentiles('queued')} "
        f"FROM (SELECT *, {took}, {queued} FROM (SELECT {name} AS name, error, retries, "
        "input_tokens, output_tokens, start_ns, end_ns, queued_ns FROM spans "
        f"WHERE operation = :operation AND start_ns >= :since {only})) "
        "GROUP BY name ORDER BY name"
    )


def token_sums(name: str, agent: str | None) -> str:
    """The query for the tokens of model calls, grouped by an expression."""
    only = "AND agent = :agent" if agent is not None else ""
    return (
        f"SELECT {name} AS name, sum(input_tokens), sum(output_tokens) FROM spans "
        f"WHERE operation = 'chat' AND start_ns >= :since {only} GROUP BY 1"
    )


def failure_sums(agent: str | None) -> str:
    only = f"AND {_AGENT_OF_RUN} = :agent" if agent is not None else ""
    return (
        "SELECT coalesce(nullif(error_code, ''), status) AS name, count(*) FROM runs "
        f"WHERE started_ns >= :since AND is_over AND status != 'completed' {only} "
        "GROUP BY 1 ORDER BY 2 DESC, 1"
    )


async def read_stats(link: StoreLink, since_ns: int, agent: str | None) -> TraceStats:
    values: dict[str, Any] = {"since": since_ns, "agent": agent}

    async def run_stats(by_run: str, by_span: str) -> list[RunStats]:
        rows = await link.fetch(run_sums(by_run, agent), values)
        found = {row[0]: _run_stats(row) for row in rows}
        for name, taken, given in await link.fetch(token_sums(by_span, agent), values):
            stats = found.setdefault(name, RunStats(name=name))
            stats.input_tokens, stats.output_tokens = taken, given
        return [found[name] for name in sorted(found)]

    async def calls(operation: str, name: str) -> list[CallStats]:
        rows = await link.fetch(call_sums(name, agent), values | {"operation": operation})
        return [_call_stats(row) for row in rows]

    total = await run_stats("''", "''")
    return TraceStats(
        since_ns=since_ns,
        total=total[0] if total else RunStats(name=""),
        failures=dict(await link.fetch(failure_sums(agent), values)),
        agents=await run_stats(_AGENT_OF_RUN, "agent"),
        days=await run_stats(_DAY.format("started_ns"), _DAY.format("start_ns")),
        models=await calls("chat", "model"),
        tools=await calls("tool", "tool"),
    )


def _run_stats(row: tuple[Any, ...]) -> RunStats:
    name, runs, completed, failed, waiting, running, turns, retries, *latency = row
    return RunStats(
        name=name,
        runs=runs,
        completed=completed,
        failed=failed,
        waiting=waiting,
        running=running,
        turns=turns,
        retries=retries,
        latency=_latency(latency),
    )


def _call_stats(row: tuple[Any, ...]) -> CallStats:
    name, calls, errors, retries, taken, given, *rest = row
    return CallStats(
        name=name,
        calls=calls,
        errors=errors,
        retries=retries,
        input_tokens=taken,
        output_tokens=given,
        latency=_latency(rest[:3]),
        queue=_latency(rest[3:]),
    )


def _latency(found: list[int]) -> Latency:
    p50, p95, most = found
    return Latency(p50_ns=p50, p95_ns=p95, max_ns=most)
