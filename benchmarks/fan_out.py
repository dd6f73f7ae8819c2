"""An orchestrator calls 20 (and 100) sub-agents as tools in one answer, model latency 50 ms.

Three model calls follow one another, so 150 ms is the minimum. Two layouts of ours: everything in
the caller's process, and a separate harness process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import processes
from figures import Figure, Series
from lab import Lab, Program, repetitions

from sandstream.testing import Conversation, Script, script_for, text, tool_calls

SIZES = (20, 100)
LATENCY_S = 0.05


@dataclass
class _Side:
    name: str
    program: Program
    pids: list[int]
    pool: str | None = None
    wall_ms: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in SIZES})
    cpu_ms: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in SIZES})

    def ask(self, runs: int, size: int) -> float:
        request: dict[str, Any] = {"do": "fan_out", "runs": runs, "size": size}
        wall_s: float = self.program.ask(**request, pool=self.pool)["wall_s"]
        return wall_s

    def measure(self, runs: int, size: int) -> None:
        cpu_s = processes.cpu_s(self.pids)
        self.wall_ms[size].append(self.ask(runs, size) * 1000 / runs)
        self.cpu_ms[size].append((processes.cpu_s(self.pids) - cpu_s) * 1000 / runs)


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    base_url = lab.model(_script())
    count, runs = (3, 2) if quick else (7, 5)
    figures: list[Figure] = []
    for loop in loops:
        sides = _start(lab, base_url, loop)
        for side in sides:
            for size in SIZES:
                side.ask(2, size)
        for _ in repetitions(count, within_s=40):
            for size in SIZES:
                for side in sides:
                    side.measure(runs, size)
        lab.close_programs()
        *ours, baseline = sides
        for side in ours:
            figures += _figures(loop, side, baseline)
    return figures


def _script() -> Script:
    """Each orchestrator asks all of its experts, then finishes; the experts answer."""
    orchestrators: list[Conversation] = []
    for size in SIZES:
        calls = [(f"ask_{number}", {"input": f"Question {number}"}) for number in range(size)]
        steps = [tool_calls(*calls).after(LATENCY_S), text("done").after(LATENCY_S)]
        orchestrators.append(script_for(f"Ask all {size},", steps))
    return Script(
        conversations=tuple(orchestrators),
        default=script_for("", [text("known").after(LATENCY_S)]),
    )


def _start(lab: Lab, base_url: str, loop: str) -> list[_Side]:
    """Each layout has its own server, so that CPU can be attributed."""
    alone_home, beside_home = lab.home(), lab.home()
    common: dict[str, Any] = {"loop": loop, "base_url": base_url}
    alone = lab.start("compositions", "sandstream", home=alone_home, **common)
    harness = lab.start("harness", "sandstream", home=beside_home, **common)
    caller = lab.start("compositions", "sandstream", home=beside_home, **common)
    baseline = lab.start("compositions", "agents", home=alone_home, **common)
    harness.wait_ready()
    alone.ask(do="fan_out", runs=1, size=SIZES[0])  # starts the server
    beside = [caller.pid, harness.pid, *lab.server_pids(beside_home)]
    return [
        _Side("in the caller", alone, [alone.pid, *lab.server_pids(alone_home)]),
        _Side("harness beside", caller, beside, pool="main"),
        _Side("agents", baseline, [baseline.pid]),
    ]


def _figures(loop: str, side: _Side, baseline: _Side) -> list[Figure]:
    figures: list[Figure] = []
    for size in SIZES:
        figures += [
            Figure(
                benchmark="fan_out",
                measure=f"wall, {size} sub-agents",
                unit="ms",
                loop=loop,
                ours=Series(side.name, side.wall_ms[size]),
                baseline=Series(baseline.name, baseline.wall_ms[size]),
                wanted_ratio=1.0,
            ),
            Figure(
                benchmark="fan_out",
                measure=f"CPU, {size} sub-agents",
                unit="ms",
                loop=loop,
                ours=Series(side.name, side.cpu_ms[size]),
                baseline=Series(baseline.name, baseline.cpu_ms[size]),
            ),
        ]
    return figures
