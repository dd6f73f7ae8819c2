"""Where something dies in the life of one container, during which operation.

A point is a crash point of the sandbox actor (``sandbox.after_create``), or a call of the engine
(``engine.create.before``: right before the engine gets it, ``after``: right after it has done it).
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Operation = Literal[
    "create", "exec", "pty", "checkpoint", "pause", "wake", "close", "restore", "delete"
]
"""In the order of a life: ``wake`` is a command in a paused box, ``close`` saves it and lets it go,
``restore`` opens the closed one again.
"""
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
Victim = Literal["actor", "box", "engine"]
"""The sandbox actor; the first process of the container; dockerd."""


class LifeCell(msgspec.Struct, frozen=True):
    """Kill the victim when ``point`` is passed for the ``count``-th time in the operation."""

    operation: Operation
    point: str
    victim: Victim
    count: int = 1
    has_python: bool = True
    """False: the box is operated by its shell alone."""

    @property
    def name(self) -> str:
        image = "" if self.has_python else "-busybox"
        return f"{self.victim}-{self.operation}-{self.point}-{self.count}{image}"

    @property
    def is_call(self) -> bool:
        return self.point.startswith("engine.")


_MADE = ("after_create", "before_ready", "after_ready", "before_reply")
_OPERATED = ("before_operation", "after_operation", "before_reply")
_SAVED = ("before_snapshot", "after_snapshot", "after_checkpoint")
_WITH_BOX: dict[Operation, tuple[str, ...]] = {
    "create": _MADE,
    "exec": ("received", *_OPERATED),
    "pty": ("received", *_OPERATED),
    "checkpoint": (*_SAVED, "after_operation"),
    "pause": ("received", "before_reply", "after_reply"),
    "wake": ("received", *_OPERATED),
    "close": (*_SAVED, "before_delete"),
    "restore": ("after_restore", *_MADE),
    "delete": ("received", "before_delete"),
}
"""The points at which there is a container."""
_WITHOUT_BOX: dict[Operation, tuple[str, ...]] = {
    "create": ("received", "before_intent", "after_intent"),
    "close": ("before_reply",),
    "restore": ("received", "before_intent", "after_intent"),
    "delete": ("before_reply",),
}
_CALLS: dict[Operation, tuple[str, ...]] = {
    "create": ("probe", "create", "prepare", "start"),
    "pause": ("pause",),
    "wake": ("unpause",),
    "restore": ("create", "start"),
    "delete": ("remove",),
}
_TYPED = ("before_operation", "after_operation")
"""A terminal is opened, and then written to: the second time."""
_ALSO_IN_MATRIX: tuple[Operation, ...] = ("create", "exec", "checkpoint", "close", "restore")
"""``test_docker_matrix.py`` kills the actor at the crash points of these."""
_STRETCHES: tuple[tuple[Operation, str], ...] = (
    ("create", "after_intent"),
    ("create", "before_ready"),
    ("exec", "before_operation"),
    ("exec", "after_operation"),
    ("pty", "before_operation"),
    ("checkpoint", "before_snapshot"),
    ("checkpoint", "after_snapshot"),
    ("close", "before_snapshot"),
    ("close", "before_delete"),
    ("restore", "after_restore"),
)
_WHEN = ("before", "after")


def _points(operation: Operation, victim: Victim) -> list[LifeCell]:
    points = _WITH_BOX[operation]
    if victim != "box":
        points = (*_WITHOUT_BOX.get(operation, ()), *points)
    cells = [LifeCell(operation, f"sandbox.{it}", victim) for it in points]
    if operation == "pty":
        cells += [LifeCell(operation, f"sandbox.{it}", victim, 2) for it in _TYPED]
    return cells


def _calls(operation: Operation, victim: Victim) -> list[LifeCell]:
    calls = _CALLS.get(operation, ())
    return [LifeCell(operation, f"engine.{it}.{when}", victim) for it in calls for when in _WHEN]


def actor_cells() -> list[LifeCell]:
    cells = [cell for it in OPERATIONS for cell in _calls(it, "actor")]
    others = [it for it in OPERATIONS if it not in _ALSO_IN_MATRIX]
    cells += [cell for it in others for cell in _points(it, "actor")]
    return [*cells, *_shell_cells("actor")]


def box_cells() -> list[LifeCell]:
    return [*(cell for it in OPERATIONS for cell in _points(it, "box")), *_shell_cells("box")]


def engine_cells() -> list[LifeCell]:
    """While the engine is down an actor needs it at the next call only, wherever it stands before:
    so the calls, and one point per stretch between two of them.
    """
    cells = [LifeCell(it, f"sandbox.{point}", "engine") for it, point in _STRETCHES]
    cells += [cell for it in OPERATIONS for cell in _calls(it, "engine")]
    return [
        *cells,
        LifeCell("pty", "sandbox.after_operation", "engine", 2),
        *_shell_cells("engine"),
    ]


def ended_cells() -> list[LifeCell]:
    """For an engine that ends its containers: those with a container that runs."""
    kept = ("engine.start.after", "engine.pause.after", "engine.unpause.after")
    return [
        cell
        for cell in engine_cells()
        if cell.point in kept or cell.point.startswith("sandbox.") or not cell.has_python
    ]


def _shell_cells(victim: Victim) -> list[LifeCell]:
    """A box without our agent does everything by executions of the engine."""
    points = [f"engine.{call}.{when}" for call in ("exec", "exec_start") for when in _WHEN]
    cells = [LifeCell("exec", it, victim, has_python=False) for it in points]
    return [*cells, LifeCell("wake", "sandbox.after_operation", victim, has_python=False)]
