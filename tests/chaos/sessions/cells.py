"""The matrix of sessions: which actor dies where, while sessions do everything they can do."""

from __future__ import annotations

from typing import Literal

import msgspec
from sandstream_bus.crashpoints import CRASH_POINTS

Where = Literal["sessions", "sandbox", "harness"]


class SessionCell(msgspec.Struct, frozen=True):
    """Kill when ``point`` is passed for the ``count``-th time in one of two replicas of ``where``:
    that replica, or the server.
    """

    point: str
    where: Where = "sessions"
    count: int = 1
    victim: Literal["self", "server"] = "self"

    @property
    def name(self) -> str:
        dead = "" if self.victim == "self" else f"{self.victim}-"
        return f"{dead}{self.point}-{self.count}"

    @property
    def slug(self) -> str:
        return self.name.replace(".", "-").replace("_", "-")


_OF_SERVER = ("before_commit", "after_outcome", "before_record", "switch_opened", "after_sleep")
_OF_SANDBOXES = ("after_intent", "before_operation", "after_checkpoint", "before_delete")
_OF_REPLIES = ("before_reply", "after_reply")
_OF_HARNESSES = ("after_commit", "before_leave", "after_leave", "before_done", "after_done")


def session_cells() -> list[SessionCell]:
    cells = [SessionCell(it) for it in CRASH_POINTS if it.startswith("sessions.")]
    cells += [SessionCell("sessions.before_outcome", count=5)]
    cells += [SessionCell("sessions.after_commit", count=9)]
    cells += [SessionCell(f"sandbox.{it}", "sandbox") for it in (*_OF_SANDBOXES, *_OF_REPLIES)]
    cells += [SessionCell(f"sandbox.{it}", "sandbox", 4) for it in _OF_REPLIES]
    cells += [SessionCell(f"harness.{it}", "harness") for it in _OF_HARNESSES]
    cells += [SessionCell(f"sessions.{it}", victim="server") for it in _OF_SERVER]
    return cells
