"""Sums and percentiles over runs and calls."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from sandstream_actors.tracing.store.link import StoreLink

T = TypeVar("T")


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of what has ended; percentiles use the nearest rank."""

    p50_ns: int = 0
    p95_ns: int = 0
    max_ns: int = 0


class RunStats(msgspec.Struct, kw_only=True):
    """The runs of one agent or of one day."""

    name: str
    """The agent that the runs began with, or the day."""
    runs: int = 0
    completed: int = 0
    failed: int = 0
    """Ended with another status."""
    waiting: int = 0
    running: int = 0
    turns: int = 0
    retries: int = 0
    """Requests that the model client repeated."""
    takeovers: int = 0
    """How often another process continued after one was lost."""
    input_tokens: int = 0
    """Of the agent's own model calls, in any run; of a day: of calls that began then."""
    output_tokens: int = 0
    latency: Latency = Latency()
    """From the start of a run to its end, including waiting for approvals."""


class CallStats(msgspec.Struct, kw_only=True):
    """The calls of one model or of one tool."""

    name: str
    calls: int = 0
    errors: int = 0
    retries: int = 0
    attempts: int = 0
    """Attempts by processes: one for each call, plus one for each time it was taken over or given
    back.
    """
    takeovers: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    latency: Latency = Latency()
    queue: Latency = Latency()
    """How long calls waited before the work began."""


class TraceStats(msgspec.Struct, kw_only=True):
    since_ns: int
    total: RunStats
    failures: dict[str, int]
    """How many runs did not complete: by error code, otherwise by status."""
    agents: list[RunStats]
    days: list[RunStats]
    models: list[CallStats]
    tools: list[CallStats]


_DAY: Final = "date({} / 1000000000, 'unixepoch', 'localtime')"
_AGENT: Final = "coalesce(nullif(first_agent, ''), agent)"
_RUNS: Final = (
    f"SELECT {_AGENT}, {_DAY.format('started_ns')}, status, is_over, turns, retries, "
    "takeovers, error_code, started_ns, ended_ns FROM runs WHERE started_ns >= :since "
    f"AND (:agent IS NULL OR {_AGENT} = :agent)"
)
_CALLS: Final = (
    f"SELECT model || tool, agent, {_DAY.format('start_ns')}, error != '', retries, attempts, "
    "takeovers, input_tokens, output_tokens, end_ns - start_ns, queued_ns FROM spans "
    "WHERE operation = :operation AND start_ns >= :since AND (:agent IS NULL OR agent = :agent)"
)


class _Times:
    """Many durations in a compact array."""

    def __init__(self) -> None:
        self._all = array("q")

    def add(self, duration_ns: int) -> None:
        self._all.append(max(0, duration_ns))

    def latency(self) -> Latency:
        ordered = sorted(self._all)
        if not ordered:
            return Latency()
        p50, p95 = (ordered[(len(ordered) * percent + 99) // 100 - 1] for percent in (50, 95))
        return Latency(p50_ns=p50, p95_ns=p95, max_ns=ordered[-1])


class _Runs:
    """Accumulates the sums of one group of runs."""

    def __init__(self, name: str) -> None:
        self.stats = RunStats(name=name)
        self._took = _Times()

    def add(
        self, status: str, over: int, turns: int, retries: int, takeovers: int, began: int, end: int
    ) -> None:
        stats = self.stats
        stats.runs += 1
        stats.turns += turns
        stats.retries += retries
        stats.takeovers += takeovers
        if over:
            stats.completed += status == "completed"
            stats.failed += status != "completed"
            if began:  # otherwise the log has lost the beginning
                self._took.add(end - began)
        else:
            stats.waiting += status == "waiting"
            stats.running += status != "waiting"

    def add_tokens(self, taken: int, given: int) -> None:
        self.stats.input_tokens += taken
        self.stats.output_tokens += given

    def result(self) -> RunStats:
        self.stats.latency = self._took.latency()
        return self.stats


class _Calls:
    """Accumulates the sums of one group of calls."""

    def __init__(self, name: str) -> None:
        self.stats = CallStats(name=name)
        self._took = _Times()
        self._queued = _Times()

    def add(
        self,
        failed: int,
        tries: tuple[int, int, int],
        tokens: tuple[int, int],
        took: int,
        queued: int,
    ) -> None:
        """``tries``: retries, attempts, takeovers."""
        stats = self.stats
        stats.calls += 1
        stats.errors += failed
        stats.retries += tries[0]
        stats.attempts += tries[1]
        stats.takeovers += tries[2]
        stats.input_tokens += tokens[0]
        stats.output_tokens += tokens[1]
        self._queued.add(queued)
        if not failed:  # a failure says nothing about how long the work takes
            self._took.add(took)

    def result(self) -> CallStats:
        self.stats.latency = self._took.latency()
        self.stats.queue = self._queued.latency()
        return self.stats


async def read_stats(link: StoreLink, since_ns: int, agent: str | None) -> TraceStats:
    """One pass each over the runs, the model calls and the tool calls."""
    asked = {"since": since_ns, "agent": agent}
    total = _Runs("")
    agents: dict[str, _Runs] = {}
    days: dict[str, _Runs] = {}
    failures: Counter[str] = Counter()
    async for rows in link.stream(_RUNS, asked):
        for name, day, status, over, turns, retries, takeovers, code, began, end in rows:
            for group in (total, _of(agents, name, _Runs), _of(days, day, _Runs)):
                group.add(status, over, turns, retries, takeovers, began, end)
            if over and status != "completed":
                failures[code or status] += 1
    models: dict[str, _Calls] = {}
    async for rows in link.stream(_CALLS, asked | {"operation": "chat"}):
        for model, name, day, failed, *tries, taken, given, took, queued in rows:
            _of(models, model, _Calls).add(failed, tuple(tries), (taken, given), took, queued)
            total.add_tokens(taken, given)
            _of(days, day, _Runs).add_tokens(taken, given)
            if name:  # otherwise a program reported the call
                _of(agents, name, _Runs).add_tokens(taken, given)
    tools: dict[str, _Calls] = {}
    async for rows in link.stream(_CALLS, asked | {"operation": "tool"}):
        for tool, _, _, failed, *tries, taken, given, took, queued in rows:
            _of(tools, tool, _Calls).add(failed, tuple(tries), (taken, given), took, queued)
    return TraceStats(
        since_ns=since_ns,
        total=total.result(),
        failures=dict(sorted(failures.items(), key=lambda it: (-it[1], it[0]))),
        agents=[agents[name].result() for name in sorted(agents)],
        days=[days[name].result() for name in sorted(days)],
        models=[models[name].result() for name in sorted(models)],
        tools=[tools[name].result() for name in sorted(tools)],
    )


def _of(groups: dict[str, T], name: str, make: Callable[[str], T]) -> T:
    group = groups.get(name)
    if group is None:
        group = groups[name] = make(name)
    return group
