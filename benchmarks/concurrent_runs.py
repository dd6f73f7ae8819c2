"""(b) 200 runs of 5 turns at once, model latency 50 ms: runs/s, CPU and memory of all processes.

Two layouts of ours: everything in the caller's process, and a separate harness process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import processes
from figures import Better, Figure, Series
from lab import Lab, Program, repetitions

from sandstream.testing import Script, script_for, text, tool_call

TURNS = 5
LATENCY_S = 0.05


@dataclass
class _Side:
    name: str
    program: Program
    pids: list[int]
    pool: str | None = None
    values: dict[str, list[float]] = field(
        default_factory=lambda: {"runs_per_s": [], "cpu_ms": [], "peak_mb": [], "model_ms": []}
    )

    def at_once(self, runs: int, model_pids: list[int]) -> None:
        request: dict[str, Any] = {"do": "at_once", "runs": runs, "turns": TURNS}
        if self.pool:
            request["pool"] = self.pool
        cpu_s, model_s = processes.cpu_s(self.pids), processes.cpu_s(model_pids)
        wall_s = self.program.ask(**request)["wall_s"]
        self.values["runs_per_s"].append(runs / wall_s)
        self.values["cpu_ms"].append((processes.cpu_s(self.pids) - cpu_s) * 1000 / runs)
        self.values["peak_mb"].append(processes.peak_mb(self.pids))
        self.values["model_ms"].append((processes.cpu_s(model_pids) - model_s) * 1000 / runs)


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    call = tool_call("add", {"a": 1, "b": 2}).times(TURNS - 1).after(LATENCY_S)
    base_url = lab.model(Script(default=script_for("", [call, text("done").after(LATENCY_S)])))
    count, runs = (1, 40) if quick else (3, 200)
    figures: list[Figure] = []
    for loop in loops:
        sides = _start(lab, base_url, loop)
        for side in sides:
            side.at_once(20, lab.model_pids)
            side.values = _Side("", side.program, []).values
        for _ in repetitions(count, within_s=45):
            for side in sides:
                side.at_once(runs, lab.model_pids)
        lab.close_programs()
        *ours, baseline = sides
        for side in ours:
            figures.extend(_figures(loop, side, baseline))
    return figures


def _start(lab: Lab, base_url: str, loop: str) -> list[_Side]:
    """Each layout has its own server, so that CPU and memory can be attributed."""
    alone_home, beside_home = lab.home(), lab.home()
    common: dict[str, Any] = {"loop": loop, "base_url": base_url}
    alone = lab.start("agent_runs", "sandstream", home=alone_home, **common)
    harness = lab.start("harness", "sandstream", home=beside_home, **common)
    caller = lab.start("agent_runs", "sandstream", home=beside_home, **common)
    baseline = lab.start("agent_runs", "agents", home=alone_home, **common)
    harness.wait_ready()
    alone.ask(do="at_once", runs=1, turns=TURNS)  # starts the server
    return [
        _Side("in the caller", alone, [alone.pid, *lab.server_pids(alone_home)]),
        _Side(
            "harness beside",
            caller,
            [caller.pid, harness.pid, *lab.server_pids(beside_home)],
            pool="main",
        ),
        _Side("agents", baseline, [baseline.pid]),
    ]


_MEASURES: list[tuple[str, str, str, Better, float | None]] = [
    ("runs_per_s", "throughput", "runs/s", "higher", 2.0),
    ("cpu_ms", "CPU per run", "ms", "lower", 0.5),
    ("peak_mb", "peak memory", "MB", "lower", None),
    ("model_ms", "model server's CPU per run", "ms", "lower", None),
]


def _figures(loop: str, side: _Side, baseline: _Side) -> list[Figure]:
    return [
        Figure(
            benchmark="concurrent_runs",
            measure=measure,
            unit=unit,
            loop=loop,
            better=better,
            ours=Series(side.name, side.values[key]),
            baseline=Series(baseline.name, baseline.values[key]),
            wanted_ratio=wanted,
        )
        for key, measure, unit, better, wanted in _MEASURES
    ]
