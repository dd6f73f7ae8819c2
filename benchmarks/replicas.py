"""Deployed agents with one and with two harness replicas: runs/s, also against the baseline.

Each layout has a server, a worker that hosts the agent's tool, a client that submits tasks, and its
replicas, all as separate processes. On a machine with two cores, all of them and the model server
share these cores: the second replica can add no more than the others leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import processes
from figures import Better, Figure, Series
from lab import Lab, Program, repetitions

from sandstream.testing import Script, script_for, text, tool_call

TURNS = 5
LATENCIES_S = (0.05, 0.0)


@dataclass
class _Layout:
    name: str
    caller: Program
    pids: list[int]
    runs_per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def measure(self, runs: int) -> None:
        cpu_s = processes.cpu_s(self.pids)
        wall_s = self.caller.ask(do="at_once", runs=runs, turns=TURNS)["wall_s"]
        self.runs_per_s.append(runs / wall_s)
        self.cpu_ms.append((processes.cpu_s(self.pids) - cpu_s) * 1000 / runs)


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    count, runs = (2, 60) if quick else (5, 200)
    figures: list[Figure] = []
    for latency_s in LATENCIES_S:
        call = tool_call("add", {"a": 1, "b": 2}).times(TURNS - 1).after(latency_s)
        base_url = lab.model(Script(default=script_for("", [call, text("done").after(latency_s)])))
        for loop in loops:
            one, two, baseline = _start(lab, base_url, loop)
            for layout in (one, two, baseline):
                layout.caller.ask(do="at_once", runs=20, turns=TURNS)
            for _ in repetitions(count, within_s=30):
                for layout in (one, two, baseline):
                    layout.measure(runs)
            lab.close_programs()
            figures += _figures(loop, f"{latency_s * 1000:.0f} ms", one, two, baseline)
    return figures


def _start(lab: Lab, base_url: str, loop: str) -> tuple[_Layout, _Layout, _Layout]:
    common: dict[str, Any] = {"loop": loop, "base_url": base_url}
    baseline = lab.start("agent_runs", "agents", home=lab.home(), **common)
    return (
        _deployed(lab, "one replica", 1, common),
        _deployed(lab, "two replicas", 2, common),
        _Layout("agents", baseline, [baseline.pid]),
    )


def _deployed(lab: Lab, name: str, replicas: int, common: dict[str, Any]) -> _Layout:
    home = lab.home()
    worker = lab.start("worker", "sandstream", home=home, **common)
    worker.wait_ready()  # it starts the server
    harnesses = [lab.start("harness", "sandstream", home=home, **common) for _ in range(replicas)]
    caller = lab.start("submitter", "sandstream", home=home, **common)
    for program in (*harnesses, caller):
        program.wait_ready()
    pids = [it.pid for it in (worker, *harnesses, caller)]
    return _Layout(name, caller, [*pids, *lab.server_pids(home)])


def _figures(
    loop: str, latency: str, one: _Layout, two: _Layout, baseline: _Layout
) -> list[Figure]:
    def figure(
        measure: str, unit: str, key: str, ours: _Layout, other: _Layout, better: Better
    ) -> Figure:
        return Figure(
            benchmark="replicas",
            measure=f"{measure}, model {latency}",
            unit=unit,
            loop=loop,
            better=better,
            ours=Series(ours.name, getattr(ours, key)),
            baseline=Series(other.name, getattr(other, key)),
        )

    return [
        figure("throughput", "runs/s", "runs_per_s", one, baseline, "higher"),
        figure("throughput", "runs/s", "runs_per_s", two, baseline, "higher"),
        figure("growth", "runs/s", "runs_per_s", two, one, "higher"),
        figure("CPU per run", "ms", "cpu_ms", two, one, "lower"),
        figure("CPU per run", "ms", "cpu_ms", two, baseline, "lower"),
    ]
