"""Where the memory actor dies. Each cell is a separate installation on the same server."""

from __future__ import annotations

import msgspec


class MemoryCell(msgspec.Struct, frozen=True):
    """Kill when ``point`` is passed for the ``count``-th time; then another replica continues."""

    point: str
    count: int = 1

    @property
    def name(self) -> str:
        return f"{self.point}-{self.count}"

    @property
    def prefix(self) -> str:
        return self.name.replace(".", "_")

    @property
    def model_fails(self) -> bool:
        """Whether the first extraction fails, which is needed to reach this point."""
        return self.point == "memory.after_failed"


_POINTS = (
    *(("received", 1), ("received", 6), ("before_note", 1), ("after_note", 2)),
    # the first starts are those of extractions, the third is that of the consolidation
    *(("before_start", 1), ("after_start", 1), ("before_start", 3), ("after_start", 3)),
    *(("before_extracted", 1), ("after_extracted", 1), ("after_extracted", 2)),
    *(("before_merged", 1), ("after_merged", 1), ("after_failed", 1)),
    *(("before_edit", 1), ("after_edit", 1), ("before_ack", 3), ("after_ack", 3)),
)


class ChangeCell(msgspec.Struct, frozen=True):
    """Kill a manual change of a memory; then it is completed by the same command or by an actor."""

    point: str
    what: str
    then: str

    @property
    def name(self) -> str:
        return f"{self.point}-{self.what}-{self.then}"

    @property
    def prefix(self) -> str:
        return self.name.replace(".", "_")


_MOMENTS = ("before_discard", "after_change", "before_finished")


def change_cells() -> list[ChangeCell]:
    """An undo is not repeated: that would undo another change."""
    removals = [
        ChangeCell(f"memory.{point}", what, then)
        for point in _MOMENTS
        for what in ("run", "rollout", "scope")
        for then in ("again", "actor")
    ]
    early = [ChangeCell("memory.before_change", what, "again") for what in ("run", "scope", "undo")]
    return [*early, *removals, *(ChangeCell(f"memory.{it}", "undo", "actor") for it in _MOMENTS)]


def memory_cells() -> list[MemoryCell]:
    return [MemoryCell(f"memory.{point}", count) for point, count in _POINTS]
