"""How cost grows with size, relative to the smallest size: `python benchmarks/scaling.py`.

Axes: events in the log, runs at once, turns of a run, children of a run, sandboxes, parked runs,
and the server's own calls with so many interleaved runs in the log.
"""

from __future__ import annotations

import argparse
import functools
import json
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import background_axes
import call_axis
import run_axes
from curves import Curve, Point, curves, number, table
from installations import LAYOUTS
from machine import describe

SIZES: dict[str, tuple[list[int], list[int]]] = {
    "log": ([10_000, 100_000, 1_000_000], [10_000, 50_000]),
    "runs": ([100, 500, 1_000, 2_000, 5_000], [50, 200]),
    "turns": ([10, 50, 100, 500], [10, 50]),
    "children": ([10, 50, 100, 500], [10, 50]),
    "boxes": ([1, 5, 20, 50], [1, 5]),
    "parked": ([0, 100, 1_000, 10_000], [0, 500]),
    "calls": ([100, 1_000, 20_000], [100, 500]),
}
"""For each axis: all sizes, and those of ``--quick``."""


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the lab cleans up
    points: list[Point] = []
    deadline = time.monotonic() + options.minutes * 60
    try:
        for axis in options.axes:
            for point in _axis(axis, options):
                points.append(point)
                print(_progress(point), file=sys.stderr, flush=True)
                if time.monotonic() > deadline:
                    print(f"{options.minutes:g} minutes are over: stopped", file=sys.stderr)
                    return 0
    finally:
        print(table(points))
        if options.json is not None:
            _write(options.json, curves(points))
    return 0


def _axis(axis: str, options: argparse.Namespace) -> Iterator[Point]:
    sizes = options.sizes or SIZES[axis][1 if options.quick else 0]
    quick, rounds = options.quick, 1 if options.quick else options.rounds
    alone_or_one = [it for it in options.layouts if it != "two replicas"] or ["one replica"]
    runs_at_once = functools.partial(
        run_axes.runs_at_once, sizes, options.layouts, options.latencies_ms, rounds
    )
    measured: dict[str, Callable[[], Iterator[Point]]] = {
        "log": lambda: background_axes.log_sizes(sizes, quick=quick, rounds=rounds),
        "parked": lambda: background_axes.parked_runs(sizes, quick=quick, rounds=rounds),
        "runs": runs_at_once,
        "turns": lambda: run_axes.turns_of_a_run(sizes, alone_or_one, rounds),
        "children": lambda: run_axes.children_of_a_run(sizes, rounds),
        "boxes": lambda: run_axes.boxes_at_once(sizes),
        "calls": lambda: call_axis.server_calls(sizes, quick=quick),
    }
    return measured[axis]()


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/scaling.py", description=__doc__)
    parser.add_argument(
        "--axes", type=_choices(SIZES), default=list(SIZES), help=f"some of: {', '.join(SIZES)}"
    )
    parser.add_argument("--sizes", type=_numbers, help="instead of the axis' own; with one axis")
    parser.add_argument(
        "--layouts",
        type=_choices(LAYOUTS),
        default=list(LAYOUTS),
        help=f"of runs and turns, some of: {', '.join(LAYOUTS)}",
    )
    parser.add_argument(
        "--latencies-ms",
        type=_numbers,
        default=[50, 0],
        help="of the model, for runs (default: 50,0)",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work?")
    parser.add_argument(
        "--rounds", type=int, default=3, help="repeat what takes little time, the best counts (3)"
    )
    parser.add_argument("--minutes", type=float, default=60, help="begin nothing after (60)")
    parser.add_argument("--json", type=Path, help="write every value here")
    options = parser.parse_args(argv)
    if options.sizes and len(options.axes) != 1:
        parser.error("--sizes needs exactly one axis: --axes runs --sizes 100,500")
    return options


def _choices(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(value: str) -> list[str]:
        chosen = [it.strip() for it in value.split(",")]
        if unknown := [it for it in chosen if it not in known]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; known: {', '.join(known)}"
            )
        return chosen

    return parse


def _numbers(value: str) -> list[int]:
    try:
        found = sorted({int(it) for it in value.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"not whole numbers: {value!r}") from None
    if found[0] < 0:
        raise argparse.ArgumentTypeError(f"negative: {found[0]}")
    return found


def _progress(point: Point) -> str:
    cpu = ", ".join(f"{role} {number(spent)}" for role, spent in point.cpu_ms.items())
    return (
        f"{point.axis} {point.size:,} · {point.layout} · {point.measure}: "
        f"{number(point.value)} {point.unit}"
        + (f" · CPU ms per {point.work}: {cpu}" if cpu else "")
        + ("" if point.others is None else f" · others use {point.others:.0%} of the cores")
        + (f" · {point.note}" if point.note else "")
    )


def _write(file: Path, found: list[Curve]) -> None:
    report = {"machine": describe(), "points": [it for curve in found for it in curve.to_dicts()]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
