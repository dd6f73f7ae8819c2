"""The sandbox matrix: where the sandbox actor, a harness or the server dies, during which work."""

from __future__ import annotations

from typing import Literal

import msgspec

Flow = Literal["run", "turn", "session", "kept", "memory"]
"""A run whose sandbox is saved at its end; one whose sandbox is saved after each turn; a caller's
session, which is stopped and resumed; such a session whose box is paused and kept meanwhile; or a
sandbox with a memory.
"""


class SandboxCell(msgspec.Struct, frozen=True):
    """Kill when ``point`` is passed for the ``count``-th time in one of two replicas: either that
    replica, or the server, or the harness, while that replica stands still.
    """

    point: str
    flow: Flow = "run"
    count: int = 1
    victim: Literal["self", "server", "harness"] = "self"

    @property
    def name(self) -> str:
        dead = "" if self.victim == "self" else f"{self.victim}-"
        return f"{dead}{self.point}-{self.count}-{self.flow}"

    @property
    def slug(self) -> str:
        return self.name.replace(".", "_")


_OF_RUNS = (
    "received",
    "before_intent",
    "after_intent",
    "after_create",
    "before_ready",
    "after_ready",
    "before_operation",
    "after_operation",
    "before_delete",
    "before_result",
    "after_result",
    "before_ack",
    "after_ack",
)
_OF_CHECKPOINTS = ("before_snapshot", "after_snapshot", "after_checkpoint")
_OF_SESSIONS = ("after_restore", "before_reply", "after_reply", "before_operation", "before_delete")
_OF_PAUSES = ("before_pause", "after_pause")
_OF_MEMORIES = (("before_memory", 1), ("after_memory", 1), ("before_memory", 2))
_OF_SERVER = ("before_intent", "before_ready", "after_operation", "before_result", "after_result")


def sandbox_cells() -> list[SandboxCell]:
    cells = [SandboxCell(f"sandbox.{point}") for point in _OF_RUNS]
    cells += [SandboxCell(f"sandbox.{point}", "turn") for point in _OF_CHECKPOINTS]
    cells += [SandboxCell(f"sandbox.{point}", "session") for point in _OF_SESSIONS]
    cells += [SandboxCell(f"sandbox.{point}", "kept") for point in _OF_PAUSES]
    cells += [SandboxCell(f"sandbox.{it}", "memory", count) for it, count in _OF_MEMORIES]
    cells += [SandboxCell("sandbox.after_operation", count=3)]
    cells += [SandboxCell("sandbox.after_checkpoint")]  # of its end
    return cells


def sandbox_harness_cells() -> list[SandboxCell]:
    cells = [SandboxCell(f"sandbox.{point}", victim="harness") for point in _OF_RUNS]
    cells += [
        SandboxCell(f"sandbox.{point}", "turn", victim="harness") for point in _OF_CHECKPOINTS
    ]
    return cells


def sandbox_server_cells() -> list[SandboxCell]:
    cells = [SandboxCell(f"sandbox.{point}", victim="server") for point in _OF_SERVER]
    cells += [SandboxCell("sandbox.after_snapshot", "turn", victim="server")]
    cells += [
        SandboxCell(f"sandbox.{point}", "session", victim="server")
        for point in ("before_reply", "after_reply")
    ]
    return cells
