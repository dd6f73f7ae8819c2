"""The composition matrix: which process dies, and where, while agents work together."""

from __future__ import annotations

from typing import Literal

import msgspec

Flow = Literal["chain", "tree", "watched", "guarded", "claim", "directed", "talk", "cancel"]
"""A chain of handoffs through two pools; agents called at once; agents that are watched; a slow
guardrail beside the model; a call that needs approval, of the run itself or two runs below it; a
conversation of several runs; a run that is cancelled while fifty children work for it.
"""


class CompositionCell(msgspec.Struct, frozen=True):
    """Kill when ``point`` is passed for the ``count``-th time in one of two replicas: either that
    replica, or the server.
    """

    point: str
    flow: Flow
    count: int = 1
    where: Literal["harness", "second", "worker", "approver"] = "harness"
    victim: Literal["self", "server"] = "self"

    @property
    def name(self) -> str:
        dead = "" if self.victim == "self" else f"{self.victim}-"
        return f"{dead}{self.where}-{self.point}-{self.count}-{self.flow}"

    @property
    def slug(self) -> str:
        return self.name.replace(".", "_")


def composition_cells() -> list[CompositionCell]:
    return [*_chains(), *_trees(), *_approvals(), *_talks(), *_cancels()]


def _chains() -> list[CompositionCell]:
    cells = [
        CompositionCell(f"harness.{when}_handoff", "chain", where=where)
        for when in ("before", "after")
        for where in ("harness", "second")
    ]
    return [
        *cells,
        CompositionCell("harness.received", "chain", where="second"),
        CompositionCell("tools.after_invoke", "chain", 4, where="worker"),
    ]


def _trees() -> list[CompositionCell]:
    return [
        CompositionCell("harness.before_child", "tree", 3),
        CompositionCell("harness.after_child", "tree", 4),
        CompositionCell("harness.before_report", "tree", 2),
        CompositionCell("harness.after_report", "tree", 2),
        CompositionCell("harness.before_report", "tree", where="second"),
        CompositionCell("bus.after_publish", "tree", 9),
        CompositionCell("tools.started", "tree", 2, where="worker"),
        CompositionCell("tools.before_early", "watched", where="worker"),
        CompositionCell("tools.after_early", "watched", where="worker"),
        CompositionCell("tools.before_early", "guarded", where="worker"),
        CompositionCell("tools.after_early", "guarded", where="worker"),
        CompositionCell("harness.received", "guarded", 2),
        CompositionCell("harness.before_model", "guarded"),
        CompositionCell("harness.received", "guarded", 3),
        CompositionCell("harness.received", "watched", 4),
        CompositionCell("harness.before_child", "watched"),
    ]


def _approvals() -> list[CompositionCell]:
    return [
        CompositionCell("index.after_waiting", "claim"),
        CompositionCell("harness.before_waiting", "claim"),
        CompositionCell("harness.after_waiting", "directed"),
        CompositionCell("harness.before_pass_on", "directed"),
        CompositionCell("harness.after_pass_on", "directed"),
        CompositionCell("harness.before_dispatch", "claim", 4),
        CompositionCell("tools.started", "claim", where="worker"),
        CompositionCell("client.before_decision", "directed", where="approver"),
        CompositionCell("client.after_decision", "directed", where="approver"),
    ]


def _talks() -> list[CompositionCell]:
    points = ("after_join", "before_leave", "after_leave", "before_wake", "after_wake")
    cells = [CompositionCell(f"harness.{point}", "talk") for point in points]
    return [*cells, CompositionCell("tools.after_invoke", "talk", 3, where="worker")]


def _cancels() -> list[CompositionCell]:
    return [
        CompositionCell("harness.before_cancel_children", "cancel"),
        CompositionCell("harness.before_report", "cancel", 5),
        CompositionCell("harness.before_done", "cancel", 12),
    ]


class ResumeCell(msgspec.Struct, frozen=True):
    """A script that continues from a saved state is killed; the next start continues again.

    ``elsewhere``: with a server that does not know the run.
    """

    point: str
    count: int = 1
    elsewhere: bool = False

    @property
    def name(self) -> str:
        return f"{self.point}-{self.count}-{'elsewhere' if self.elsewhere else 'here'}"


def resume_cells() -> list[ResumeCell]:
    return [
        ResumeCell("runner.before_resume"),
        ResumeCell("runner.after_resume"),
        ResumeCell("bus.after_publish", 6),
        ResumeCell("runner.after_restore", 1, elsewhere=True),
        ResumeCell("runner.after_restore", 3, elsewhere=True),
    ]


_EARLY: tuple[Flow, ...] = ("watched", "guarded")
"""Flows in which a tool host publishes before the result of a call."""


def composition_server_cells() -> list[CompositionCell]:
    """The server dies exactly when an actor is about to publish or has just published."""

    def cell(point: str, flow: Flow, count: int = 1) -> CompositionCell:
        return CompositionCell(f"harness.{point}", flow, count, victim="server")

    return [
        cell("before_handoff", "chain"),
        cell("after_handoff", "chain"),
        cell("before_child", "tree", 2),
        cell("after_child", "tree", 2),
        cell("before_report", "tree", 2),
        cell("after_report", "tree", 2),
        cell("before_waiting", "claim"),
        cell("after_waiting", "directed"),
        cell("before_pass_on", "directed"),
        cell("after_pass_on", "directed"),
        cell("after_join", "talk"),
        cell("before_leave", "talk"),
        cell("after_leave", "talk"),
        cell("before_wake", "talk"),
        cell("after_wake", "talk"),
        cell("before_cancel_children", "cancel"),
        CompositionCell("index.after_waiting", "claim", victim="server"),
        *(
            CompositionCell(f"tools.{when}_early", flow, 1, "worker", "server")
            for when in ("before", "after")
            for flow in _EARLY
        ),
    ]
