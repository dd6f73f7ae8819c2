"""A run that the log has lost, from the store of traces of this machine."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.queries import TraceReader
from sandstream_bus.bus import Bus

from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.traces import TracedRun, TracedTree, below


async def stored_tree(bus: Bus, home: Path, run: str) -> TracedTree | None:
    """The run and those below it as the store has them; None if it has not heard of it."""
    reader = await TraceReader.open_to_read(store_path(home, await installation_of(bus)))
    if reader is None:
        return None
    try:
        facts = await reader.run(run)
        if facts is None:
            return None
        tree = _subtree(run, await reader.tree(facts.root))
        spans = await reader.spans_of_tree(facts.root)
    finally:
        await reader.close()
    by_run: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_run[span.run].append(span)
    runs = [TracedRun(facts=it, spans=by_run[it.run]) for it in tree]
    known = [span.span_id for it in runs for span in it.spans]
    runs[0].spans.extend(below(by_run[""], known))
    return TracedTree(runs=runs, now_ns=_latest(runs), is_from_store=True)


def _subtree(run: str, tree: list[RunFacts]) -> list[RunFacts]:
    """The run and those below it, itself first; the tree may begin above it."""
    found = [it for it in tree if it.run == run]
    names = {run}
    for it in sorted(tree, key=lambda it: it.started_ns):
        if it.parent in names and it.run not in names:
            names.add(it.run)
            found.append(it)
    return found


def _latest(runs: list[TracedRun]) -> int:
    """The latest known time. The end of a run may be missing from the store."""
    return max(
        max(run.facts.started_ns, run.facts.ended_ns, *(span.end_ns for span in run.spans), 0)
        for run in runs
    )


def summary_of_facts(facts: RunFacts, children: int) -> RunSummary:
    """What a list of runs would have said."""
    return RunSummary(
        run_id=facts.run,
        agent=facts.agent,
        status=facts.status,
        step="" if facts.is_over else "its log is gone",
        turns=facts.turns,
        usage=facts.usage,
        started_at=_text(facts.started_ns),
        ended_at=_text(facts.ended_ns),
        pool=facts.pool,
        key=facts.key or None,
        error=facts.error,
        last_sequence=facts.last_seq,
        parent=facts.parent,
        root=facts.root if facts.parent else "",
        children=children,
        session=facts.session,
        takeovers=facts.takeovers,
    )


def _text(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat() if time_ns else ""
