"""Curves: how one cost grows with a size, relative to the smallest size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from figures import Better

_REPEAT_WITHIN_S = 20.0
ROLES = ("nats-server", "harness", "worker", "caller")


class Point(msgspec.Struct, kw_only=True):
    """One measurement at one size of one axis."""

    axis: str
    layout: str
    measure: str
    size: int
    value: float
    unit: str
    better: Better = "lower"
    work: str = ""
    """The unit that ``cpu_ms`` is divided by: run, turn, child or box."""
    cpu_ms: dict[str, float] = {}
    """CPU time per unit of work, by role."""
    peak_mb: dict[str, float] = {}
    """The highest resident memory of each role during the measurement."""
    others: float | None = None
    """The share of the machine's cores that other processes used, which affects wall times."""
    note: str = ""

    @property
    def curve(self) -> tuple[str, str, str]:
        return self.axis, self.layout, self.measure


def best_of(measure: Callable[[], Point], rounds: int) -> Point:
    """Repeat quick measurements and keep the best, because the machine is shared."""
    began = time.monotonic()
    best = measure()
    for _ in range(rounds - 1):
        if time.monotonic() - began > _REPEAT_WITHIN_S:
            break
        again = measure()
        is_better = again.value < best.value if best.better == "lower" else again.value > best.value
        best = again if is_better else best
    return best


class Curve:
    """All sizes of one measure, smallest first."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.points = sorted(points, key=lambda point: point.size)

    def ratio(self, point: Point) -> float | None:
        """The point's value relative to that of the smallest size."""
        return _ratio(point.value, self.points[0].value)

    def cpu_ratio(self, point: Point, role: str) -> float | None:
        return _ratio(point.cpu_ms.get(role), self.points[0].cpu_ms.get(role))

    def to_dicts(self) -> Iterator[dict[str, Any]]:
        for point in self.points:
            yield msgspec.to_builtins(point) | {
                "ratio": self.ratio(point),
                "cpu_ratio": {role: self.cpu_ratio(point, role) for role in point.cpu_ms},
            }


def curves(points: Iterable[Point]) -> list[Curve]:
    found: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        found.setdefault(point.curve, []).append(point)
    return [Curve(each) for each in found.values()]


_HEADS = ["axis", "layout", "measure", "size", "value", "ratio"]
_MORE = ["CPU ms per", *ROLES, "nats ×", "peak MB", *ROLES, "others", "note"]


def table(points: Iterable[Point]) -> str:
    """One line per point; ``ratio`` and ``nats ×`` compare with the smallest size."""
    rows = [[*_HEADS, *_MORE]]
    for curve in curves(points):
        rows += [_row(curve, point) for point in curve.points]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _row(curve: Curve, point: Point) -> list[str]:
    return [
        point.axis,
        point.layout,
        point.measure,
        f"{point.size:,}",
        f"{number(point.value)} {point.unit}",
        _times(curve.ratio(point)),
        point.work,
        *(number(point.cpu_ms.get(role)) for role in ROLES),
        _times(curve.cpu_ratio(point, "nats-server")),
        "",
        *(number(point.peak_mb.get(role)) for role in ROLES),
        "" if point.others is None else f"{point.others:.0%}",
        point.note,
    ]


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _ratio(value: float | None, smallest: float | None) -> float | None:
    return value / smallest if value is not None and smallest else None
