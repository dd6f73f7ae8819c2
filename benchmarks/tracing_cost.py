"""The cost of tracing: runs of a deployed agent with and without a tracing actor.

Three layouts: no tracing; an actor that stores traces; an actor that also exports them by OTLP. The
actor has its own process with a lower priority: it may lag behind, but must not slow runs down. Its
lag is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import processes
from figures import Figure, Series
from lab import Lab, Program, repetitions

from sandstream.testing import Script, script_for, text, tool_call

TURNS = 5
LATENCIES_S = (0.05, 0.0)
MAX_COST = 0.05


@dataclass
class _Layout:
    name: str
    caller: Program
    tracer: Program | None
    others: list[int]
    """All other processes: the server, the harness, the worker, the caller."""
    runs_per_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    others_ms: list[float] = field(default_factory=list)

    def measure(self, runs: int) -> None:
        before = processes.cpu_s([self.tracer.pid]) if self.tracer else 0.0
        others_s = processes.cpu_s(self.others)
        wall_s = self.caller.ask(do="at_once", runs=runs, turns=TURNS)["wall_s"]
        self.runs_per_s.append(runs / wall_s)
        if self.tracer is not None:
            self.late_s.append(self.tracer.ask(do="catch_up")["wall_s"])
            self.cpu_ms.append((processes.cpu_s([self.tracer.pid]) - before) * 1000 / runs)
        self.others_ms.append((processes.cpu_s(self.others) - others_s) * 1000 / runs)


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    count, runs = (3, 60) if quick else (15, 150)
    figures: list[Figure] = []
    for latency_s in LATENCIES_S:
        call = tool_call("add", {"a": 1, "b": 2}).times(TURNS - 1).after(latency_s)
        base_url = lab.model(Script(default=script_for("", [call, text("done").after(latency_s)])))
        for loop in loops:
            layouts = _start(lab, base_url, loop)
            for layout in layouts:
                layout.caller.ask(do="at_once", runs=20, turns=TURNS)
            for number in repetitions(count, within_s=150):
                # rotate, so that each layout is first, second and third equally often
                for index in range(len(layouts)):
                    layouts[(index + number) % len(layouts)].measure(runs)
            lab.close_programs()
            figures += _figures(loop, f"{latency_s * 1000:.0f} ms", *layouts)
    return figures


def _start(lab: Lab, base_url: str, loop: str) -> list[_Layout]:
    common: dict[str, Any] = {"loop": loop, "base_url": base_url}
    sink = lab.start("otlp_sink", "sandstream", home=lab.home())
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.ask()["url"]}
    return [
        _layout(lab, "untraced", None, common),
        _layout(lab, "traced", {}, common),
        _layout(lab, "traced, exported", endpoint, common),
    ]


def _layout(
    lab: Lab, name: str, settings: dict[str, str] | None, common: dict[str, Any]
) -> _Layout:
    home = lab.home()
    worker = lab.start("worker", "sandstream", home=home, **common)
    worker.wait_ready()  # it starts the server
    harness = lab.start("harness", "sandstream", home=home, **common)
    caller = lab.start("submitter", "sandstream", home=home, **common)
    tracer = None
    if settings is not None:
        tracer = lab.start("tracing", "sandstream", home=home, settings=settings, **common)
        tracer.wait_ready()
    for program in (harness, caller):
        program.wait_ready()
    pids = [it.pid for it in (worker, harness, caller)]
    return _Layout(name, caller, tracer, [*pids, *lab.server_pids(home)])


def _figures(loop: str, latency: str, plain: _Layout, *traced: _Layout) -> list[Figure]:
    figures: list[Figure] = []
    for layout in traced:
        figures += [
            Figure(
                benchmark="tracing_cost",
                measure=f"throughput, model {latency}",
                unit="runs/s",
                loop=loop,
                better="higher",
                ours=Series(layout.name, layout.runs_per_s),
                baseline=Series(plain.name, plain.runs_per_s),
                wanted_ratio=1 - MAX_COST,
            ),
            Figure(
                benchmark="tracing_cost",
                measure=f"everybody else's CPU per run, model {latency}",
                unit="ms",
                loop=loop,
                ours=Series(layout.name, layout.others_ms),
                baseline=Series(plain.name, plain.others_ms),
            ),
            Figure(
                benchmark="tracing_cost",
                measure=f"the actor's CPU per run, model {latency}",
                unit="ms",
                loop=loop,
                ours=Series(layout.name, layout.cpu_ms),
            ),
            Figure(
                benchmark="tracing_cost",
                measure=f"behind at the end of the load, model {latency}",
                unit="s",
                loop=loop,
                ours=Series(layout.name, layout.late_s),
            ),
        ]
    return figures
