"""The processes of a run as lines: ``sandstream show RUN``."""

from __future__ import annotations

from collections.abc import Sequence

from sandstream_bus.counts import numbered
from sandstream_bus.wire.attempts import short_name

from sandstream._inspect.workers import WorkerSummary
from sandstream.cli.terminal.mask import masked_line
from sandstream.cli.terminal.render import Cell, Column, Screen, table

_COLUMNS = [Column("PROCESS", shrinks=16), Column("DID", shrinks=12)]
_STEPS = {"chat": "model call", "tool": "tool call", "sandbox": "sandbox operation"}
_NAMELESS = "(not named)"


def worker_lines(screen: Screen, workers: Sequence[WorkerSummary]) -> list[str]:
    """One line for each worker; none if the log names no worker."""
    if not workers:
        return []
    rows = [[Cell(_name(it)), Cell(_did(it), "yellow" if it.lost else "")] for it in workers]
    return table(screen, _COLUMNS, rows)[1:]


def _name(it: WorkerSummary) -> str:
    return masked_line(short_name(it.worker)) if it.worker else _NAMELESS


def _did(it: WorkerSummary) -> str:
    told = [numbered(count, _STEPS.get(kind, f"{kind} step")) for kind, count in it.steps.items()]
    if it.takeovers:
        told.append(f"took over {it.takeovers}")
    if it.lost:
        told.append(f"{numbered(it.lost, 'attempt')} lost")
    return ", ".join(told)
