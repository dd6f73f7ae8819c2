"""The report of the chaos tests: ``PYTHONPATH=tests python -m chaos.report`` prints the last one.

Every test module writes its section of ``tests/output/chaos-report.json``.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chaos.evidence import LIMIT_S, Outcome

PATH = Path(__file__).parents[1] / "output" / "chaos-report.json"


def write(section: str, outcomes: Iterable[Outcome]) -> None:
    """Replace one section of the report."""
    PATH.parent.mkdir(exist_ok=True)
    report = read()
    report[section] = [asdict(outcome) for outcome in outcomes]
    PATH.write_text(json.dumps(report, indent=1))


def read() -> dict[str, list[dict[str, Any]]]:
    try:
        found: dict[str, list[dict[str, Any]]] = json.loads(PATH.read_text())
    except (OSError, ValueError):
        return {}
    return found


def lines(report: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The report for people: a line per cell, then the figures of each section."""
    said: list[str] = []
    for section, cells in sorted(report.items()):
        said.append(f"{section}: {len(cells)} cells")
        said += [_line(cell) for cell in cells]
        said += [_figures(section, cells), ""]
    return said


def _line(cell: dict[str, Any]) -> str:
    waits = cell["continued_s"]
    waited = f"{max(waits):5.2f} s" if waits else "      –"
    calls = f"{cell['effects']:4} effects of {cell['tool_calls']:3} calls"
    asked = f"{cell['model_requests']:3} requests for {cell['model_turns']:3} turns"
    unknown = f"{cell['unknown_outcomes']} unknown"
    verdict = "ok" if not cell["problems"] else f"FAILED: {cell['problems'][0]}"
    return f"  {cell['name']:52} {calls}, {unknown}, {asked}, continued {waited}  {verdict}"


def _figures(section: str, cells: list[dict[str, Any]]) -> str:
    waits = sorted(wait for cell in cells for wait in cell["continued_s"])
    if not waits:
        return f"  {section}: no run was held by the dead"
    over = sum(wait > LIMIT_S for wait in waits)
    return (
        f"  {section}: seconds from a kill to the run's next event: max {waits[-1]:.2f}, "
        f"median {statistics.median(waits):.2f}, {over} of {len(waits)} above {LIMIT_S:.0f}"
    )


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines(read())) + "\n")
