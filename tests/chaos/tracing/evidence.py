"""Compares what tracing actors stored and exported with the log itself, folded here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import msgspec
from sandstream_actors.run.observed_log import read_run
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.limits import SpanLimits, limited
from sandstream_actors.tracing.redaction import Redactor
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.queries import TraceReader
from sandstream_bus.bus import Bus
from support.tracing.otlp_receiver import ReceivedSpan


class Judgement(msgspec.Struct, kw_only=True):
    """The findings; without problems, everything is correct."""

    name: str = ""
    kills: int = 0
    runs: int = 0
    spans: int = 0
    received: int = 0
    """Spans received by the endpoint, including repeated ones."""
    twice: int = 0
    """How many of them had been received before."""
    problems: list[str] = []

    def check(self, holds: object, problem: str) -> None:
        if not holds:
            self.problems = [*self.problems, problem]

    def line(self) -> str:
        verdict = "ok" if not self.problems else f"FAILED: {len(self.problems)} problems"
        return (
            f"{self.name:28} {self.kills:3} kills, {self.runs:4} runs, {self.spans:5} spans, "
            f"{self.twice:4} came twice  {verdict}"
        )


async def all_runs(bus: Bus) -> list[str]:
    """Every run in the log."""
    found: set[str] = set()
    for kind in ("start.*", "done"):
        filter_ = f"{bus.subjects.prefix}.run.*.{kind}"
        subjects = await bus.topology.subjects_of(bus.connection, bus.topology.log, filter_)
        found.update(bus.subjects.parse_run(it).run for it in subjects)
    return sorted(found)


async def expected(bus: Bus, runs: Iterable[str]) -> dict[str, list[Span]]:
    """The ended spans of each run, as the log gives them and a store may keep them."""
    redactor, limits = Redactor(), SpanLimits()
    found: dict[str, list[Span]] = {}
    for run in runs:
        trace = RunTrace.of(run, (await read_run(bus, run)).events, quotes=False)
        ended = [span for span in trace.spans() if not span.is_open]
        found[run] = [limited(redactor.redact_span(span), limits) for span in ended]
    return found


async def judge_stores(
    judgement: Judgement, wanted: dict[str, list[Span]], stores: Iterable[TraceReader]
) -> None:
    """All stores together have every span with its content, and one of them has each whole run."""
    readers = list(stores)
    for run, spans in wanted.items():
        judgement.runs += 1
        judgement.spans += len(spans)
        kept = [await reader.spans(run) for reader in readers]
        for one in kept:
            judgement.check(len({it.span_id for it in one}) == len(one), f"{run}: kept twice")
        whole = {span.span_id: span for span in spans}
        is_kept = any({it.span_id: it for it in one} == whole for one in kept)
        judgement.check(is_kept, f"{run}: {_difference(whole, kept)}")


def _difference(wanted: dict[str, Span], kept: list[list[Span]]) -> str:
    found = {it.span_id: it for one in kept for it in one}
    missing = [span.name for id_, span in wanted.items() if id_ not in found]
    more = [span.name for id_, span in found.items() if id_ not in wanted]
    other = [span.name for id_, span in wanted.items() if found.get(id_, span) != span]
    return f"missing {missing}, more {more}, other {other}"


def judge_received(
    judgement: Judgement, wanted: dict[str, list[Span]], received: Iterable[ReceivedSpan]
) -> None:
    """The endpoint has every span and nothing else; repeated spans are identical."""
    came: defaultdict[str, list[ReceivedSpan]] = defaultdict(list)
    for it in received:
        came[it.span_id].append(replace(it, resource={}))
    judgement.received += sum(map(len, came.values()))
    judgement.twice += sum(len(them) - 1 for them in came.values())
    spans = {span.span_id: span for them in wanted.values() for span in them}
    for id_ in came.keys() - spans.keys():
        judgement.check(False, f"received {came[id_][0].name} ({id_}), which is in no log")
    for id_, span in spans.items():
        if id_ not in came:
            judgement.check(False, f"{span.run}: {span.name} ({id_}) was never received")
            continue
        first = came[id_][0]
        judgement.check(all(it == first for it in came[id_]), f"{span.name} ({id_}) has changed")
        same = (first.trace_id, first.parent_id, first.name, first.start, first.end)
        judgement.check(
            same == (span.trace_id, span.parent_id, span.name, span.start_ns, span.end_ns),
            f"{span.run}: {span.name} ({id_}) was received as {same}",
        )
