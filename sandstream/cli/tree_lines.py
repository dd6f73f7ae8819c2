"""The tree below a run as a table: child runs below the calls that started them, handoffs, what
people decided, what guardrails objected to.
"""

from __future__ import annotations

from sandstream.cli.approval_texts import decided_text, wanted_text
from sandstream.cli.event_texts import STATUS_STYLES, call_text, guardrail_text
from sandstream.cli.render import (
    Cell,
    Column,
    Row,
    Screen,
    clock,
    count,
    duration,
    seconds_between,
    table,
)
from sandstream.cli.trees import Approval, ChildCall, Handoff, Objection, RunTree, TreeStep
from sandstream.summaries import RunSummary

_COLUMNS = [
    Column("TREE", shrinks=38),
    Column("STATUS"),
    Column("TURNS", ">", drops=3),
    Column("TOKENS", ">", drops=2),
    Column("TOOK", ">", drops=4),
    Column("RUN / WHO", shrinks=12),
]
_DECISION_STYLES = {"waiting": "bold yellow", "approved": "green", "rejected": "red"}


def tree_lines(screen: Screen, tree: RunTree) -> list[str]:
    """The table; nothing for a run without anything below it."""
    if not tree.steps:
        return []
    sources = [step.source for step in tree.steps if isinstance(step, Handoff)]
    first = sources[0] if sources else tree.summary.agent
    rows = [_run_row("", first, tree.summary), *_rows(tree, "")]
    return table(screen, _COLUMNS, rows)


def _rows(tree: RunTree, margin: str) -> list[Row]:
    rows: list[Row] = []
    for number, step in enumerate(tree.steps, start=1):
        is_last = number == len(tree.steps)
        rows.append(_step_row(margin + ("└─ " if is_last else "├─ "), step))
        if isinstance(step, ChildCall) and step.run is not None:
            rows.extend(_rows(step.run, margin + ("   " if is_last else "│  ")))
    return rows


def _step_row(margin: str, step: TreeStep) -> Row:
    match step:
        case ChildCall():
            text = call_text(step.tool, step.arguments)
            if step.run is None:
                return _note_row(margin, text, Cell("starting", "dim"), "")
            return _run_row(margin, text, step.run.summary)
        case Handoff():
            text = f"{step.source} hands over to {step.target}"
            return _note_row(margin, text, Cell("handoff", "blue"), clock(step.time))
        case Approval():
            who = f"{step.asked.call}, asked {clock(step.time)}"
            if step.decided is not None:
                said = decided_text("", step.decided).lstrip(" :,")
                who = f"{clock(step.decided_at)} {said}"
            status = Cell(step.decision, _DECISION_STYLES[step.decision])
            return _note_row(margin, wanted_text(step.asked), status, who)
        case Objection():
            text = guardrail_text(step.guardrail)
            outcome = "tripped" if step.guardrail.tripped else "refused"
            return _note_row(margin, text, Cell(outcome, "yellow"), clock(step.time))


def _run_row(margin: str, text: str, summary: RunSummary) -> Row:
    took = seconds_between(summary.started_at, summary.ended_at)
    return [
        Cell(text, prefix=margin),
        Cell(summary.status.replace("_", " "), STATUS_STYLES.get(summary.status, "")),
        Cell(str(summary.turns)),
        Cell(count(summary.usage.total_tokens)),
        Cell(duration(took), "dim"),
        Cell(summary.run_id),
    ]


def _note_row(margin: str, text: str, status: Cell, who: str) -> Row:
    return [Cell(text, prefix=margin), status, Cell(""), Cell(""), Cell(""), Cell(who, "dim")]
