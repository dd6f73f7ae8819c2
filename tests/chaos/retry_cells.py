"""Where processes die while a run that failed is retried."""

from __future__ import annotations

from typing import Literal, NamedTuple


class RetryCell(NamedTuple):
    """Kill at the first passing of ``point``."""

    where: Literal["program", "caller", "actors", "worker"]
    """A program that has everything in it; a client that requests the retry; a harness that takes a
    task again; a worker whose call has just failed, and which gets that call again.
    """
    point: str
    model_calls: int = 0
    """How many model answers may be lost by the kill, because they were not recorded."""
    effects: int = 0
    """How many tool calls may be repeated, because they were not recorded."""

    @property
    def name(self) -> str:
        return f"{self.where}-{self.point}"


def retry_cells() -> list[RetryCell]:
    program = [
        RetryCell("program", point)
        for point in (
            *("runner.before_retry", "runner.after_retry"),
            *("retry.before_child", "retry.after_child"),
            *("harness.received", "harness.before_dispatch", "harness.after_dispatch"),
            *("harness.before_model", "harness.after_commit"),
            *("harness.before_report", "harness.after_report"),
            *("harness.before_done", "harness.after_done"),
            *("tools.received", "tools.before_invoke", "tools.published", "tools.before_ack"),
        )
    ]
    program.append(RetryCell("program", "harness.before_commit", model_calls=1))
    program.append(RetryCell("program", "tools.after_invoke", effects=1))
    caller = [
        RetryCell("caller", point)
        for point in (
            *("client.before_retry", "client.after_retry"),
            *("retry.before_reopen", "retry.after_reopen"),
        )
    ]
    task = [RetryCell("actors", f"retry.{when}_task") for when in ("before", "after")]
    worker = [RetryCell("worker", "tools.published"), RetryCell("worker", "tools.before_ack")]
    return [*program, *caller, *task, *worker]
