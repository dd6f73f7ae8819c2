"""Figures: repeated measurements, their targets, and the table."""

from __future__ import annotations

import statistics
from typing import Any, Literal

import msgspec

Better = Literal["lower", "higher"]


class Series(msgspec.Struct):
    """One side's repetitions of one measurement."""

    side: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def best(self, better: Better) -> float:
        return min(self.values) if better == "lower" else max(self.values)


class Figure(msgspec.Struct):
    """A measurement of ours beside the baseline's. The ratio is ours / baseline."""

    benchmark: str
    measure: str
    unit: str
    ours: Series
    baseline: Series | None = None
    better: Better = "lower"
    loop: str = "asyncio"
    wanted_ratio: float | None = None
    """At most (lower is better) or at least (higher is better) this ratio of the medians."""
    wanted_extra: float | None = None
    """Ours may be at most this much more than the baseline, in the figure's unit."""
    wanted_at_most: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.ours.median / self.baseline.median if self.baseline else None

    @property
    def best_ratio(self) -> float | None:
        if self.baseline is None:
            return None
        return self.ours.best(self.better) / self.baseline.best(self.better)

    @property
    def wanted(self) -> str:
        if self.wanted_ratio is not None:
            return f"{'≤' if self.better == 'lower' else '≥'} {self.wanted_ratio:g}×"
        if self.wanted_extra is not None:
            return f"≤ {self.wanted_extra:+g} {self.unit}"
        if self.wanted_at_most is not None:
            return f"≤ {self.wanted_at_most:g} {self.unit}"
        return ""

    @property
    def is_met(self) -> bool | None:
        if self.wanted_ratio is not None and self.ratio is not None:
            if self.better == "lower":
                return self.ratio <= self.wanted_ratio
            return self.ratio >= self.wanted_ratio
        if self.wanted_extra is not None and self.baseline is not None:
            return self.ours.median - self.baseline.median <= self.wanted_extra
        if self.wanted_at_most is not None:
            return self.ours.median <= self.wanted_at_most
        return None

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields | {
            "ratio": self.ratio,
            "best_ratio": self.best_ratio,
            "is_met": self.is_met,
        }


_HEADS = ("benchmark", "loop", "measure", "n", "ours", "best / median", "baseline")
_RATIOS = ("best / median", "ratio best / med", "wanted", "")


def table(figures: list[Figure]) -> str:
    """The figures as text, one line each."""
    rows = [[*_HEADS, *_RATIOS]]
    for figure in figures:
        base = figure.baseline
        rows.append(
            [
                figure.benchmark,
                figure.loop,
                f"{figure.measure} [{figure.unit}]",
                str(len(figure.ours.values)),
                figure.ours.side,
                _pair(figure.ours, figure.better),
                base.side if base else "",
                _pair(base, figure.better) if base else "",
                f"{figure.best_ratio:.2f} / {figure.ratio:.2f}" if base else "",
                figure.wanted,
                {True: "met", False: "MISSED", None: ""}[figure.is_met],
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _pair(series: Series, better: Better) -> str:
    return f"{_number(series.best(better))} / {_number(series.median)}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
