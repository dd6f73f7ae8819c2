"""Where the tracing actor dies. Each cell is a separate group that reads the same log, with its own
store and endpoint.
"""

from __future__ import annotations

import msgspec


class TracingCell(msgspec.Struct, frozen=True):
    """Kill when ``point`` is passed for the ``count``-th time; then another replica continues."""

    point: str
    count: int = 1

    @property
    def name(self) -> str:
        return f"{self.point}-{self.count}"

    @property
    def group(self) -> str:
        return self.name.replace(".", "_")


_POINTS = (
    *(("received", 7), ("before_record", 5), ("after_record", 5), ("before_mark", 1)),
    *(("after_mark", 1), ("before_export", 1), ("after_export", 1), ("before_ack", 9)),
    ("after_ack", 9),
)


def tracing_cells() -> list[TracingCell]:
    return [TracingCell(f"tracing.{point}", count) for point, count in _POINTS]
