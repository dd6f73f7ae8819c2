"""Ten thousand runs in the store: catching up with them, and viewing one.

The baseline is the same view of a store with a hundredth of the runs: frequent queries must not get
slower as the store grows.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from figures import Figure, Series
from lab import Lab, Program, repetitions

from sandstream.testing import Script, script_for, text, tool_call

TURNS = 3
FEW = 100
VIEWS = ("runs", "show", "stats")
COMMANDS = ("runs", "show")


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    many = 1_000 if quick else 10_000
    steps = [tool_call("add", {"a": 1, "b": 2}).times(TURNS - 1), text("done")]
    base_url = lab.model(Script(default=script_for("", steps)))
    figures: list[Figure] = []
    for loop in loops:
        few, many_side = (_Side(lab, base_url, loop, runs) for runs in (FEW, many))
        for _ in repetitions(3 if quick else 9, within_s=60):
            for side in (few, many_side):
                side.look(lab)
        figures += _figures(loop, few, many_side)
        lab.close_programs()
    return figures


class _Side:
    """An installation with this many runs in its log and in its store."""

    def __init__(self, lab: Lab, base_url: str, loop: str, runs: int) -> None:
        self.name = f"{runs:,} runs"
        self.home = lab.home()
        self.base_url = base_url
        writer = lab.start("past_runs", "sandstream", loop=loop, base_url=base_url, home=self.home)
        written = writer.ask(first=0, runs=runs)
        self.run = str(written["last"])
        self.tracer: Program = lab.start("tracing", "sandstream", loop=loop, home=self.home)
        self.tracer.wait_ready()
        began = time.perf_counter()
        self.tracer.ask(do="catch_up")
        self.events_per_s = [written["events"] / (time.perf_counter() - began)]
        folded = self.tracer.ask(do="fold", run=self.run, times=500)
        self.folded_per_s = [folded["events"] / folded["traced_s"]]
        self.state_per_s = [folded["events"] / folded["state_s"]]
        self.views: dict[str, list[float]] = {name: [] for name in VIEWS}
        self.commands: dict[str, list[float]] = {name: [] for name in COMMANDS}

    def look(self, lab: Lab) -> None:
        for name, took_ms in self.tracer.ask(do="views", run=self.run, times=5).items():
            self.views[name].append(took_ms)
        environment = lab.environment(self.base_url, self.home)
        for name in COMMANDS:
            command = [str(Path(sys.executable).with_name("sandstream")), name]
            began = time.perf_counter()
            subprocess.run(
                [*command, *([self.run] if name == "show" else []), "--json"],
                env=environment,
                stdout=subprocess.DEVNULL,
                check=True,
            )
            self.commands[name].append((time.perf_counter() - began) * 1000)


def _figures(loop: str, few: _Side, many: _Side) -> list[Figure]:
    def figure(measure: str, unit: str, ours: list[float], baseline: list[float]) -> Figure:
        return Figure(
            benchmark="trace_views",
            measure=measure,
            unit=unit,
            loop=loop,
            ours=Series(many.name, ours),
            baseline=Series(few.name, baseline),
            better="higher" if unit == "events/s" else "lower",
        )

    return [
        figure("log to store", "events/s", many.events_per_s, few.events_per_s),
        Figure(
            benchmark="trace_views",
            measure="fold alone",
            unit="events/s",
            loop=loop,
            better="higher",
            ours=Series("spans", many.folded_per_s),
            baseline=Series("the harness's state", many.state_per_s),
        ),
        *(figure(f"store: {it}", "ms", many.views[it], few.views[it]) for it in VIEWS),
        *(figure(f"sandstream {it}", "ms", many.commands[it], few.commands[it]) for it in COMMANDS),
    ]
