"""Shared by tables of runs: colours of states, the order of trees, outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.texts import value_text

STATUS_STYLES = {
    "running": "cyan",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "max_turns": "red",
    "guardrail": "yellow",
    "budget": "yellow",
}


def in_tree_order(found: Sequence[RunSummary]) -> list[tuple[RunSummary, str]]:
    """Runs in their order, each with the runs below it right after it, and how far to indent."""
    known = {summary.run_id for summary in found}
    below: dict[str, list[RunSummary]] = {}
    for summary in found:
        below.setdefault(summary.parent if summary.parent in known else "", []).append(summary)

    def walk(run: str, depth: int) -> Iterator[tuple[RunSummary, str]]:
        for summary in below.get(run, ()):
            yield summary, f"{'  ' * (depth - 1)}└ " if depth else ""
            yield from walk(summary.run_id, depth + 1)

    for children in (runs for parent, runs in below.items() if parent):
        children.sort(key=lambda it: it.started_at)
    return list(walk("", 0))


def ending(summary: RunSummary) -> str:
    """What a run does now, or its outcome."""
    if not summary.is_over:
        tool = summary.step.removeprefix("tool ")
        return summary.step if tool == summary.step else f"→ {tool}"
    if summary.error is not None:
        return summary.error.message
    return "" if summary.output is None else value_text(summary.output)
