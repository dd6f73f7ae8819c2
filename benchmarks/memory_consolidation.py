"""The cost of memories: from the ends of 200 runs to a consolidated memory, and the effect on a
running agent (target: none).

The memory actor has its own process with a lower priority. The reference makes memories in the
caller's process when a sandbox closes, so the run that opened it waits for both phases.
"""

from __future__ import annotations

from typing import Any

from figures import Better, Figure, Series
from lab import Lab, Program, repetitions
from memory_script import BASELINES, OURS, consolidation, extraction

from sandstream.testing import Script, script_for, text, tool_call

LATENCY_S = 0.05
BATCH = 50
SESSIONS = 4
TURNS = 5
MAX_COST = 0.05
KINDS = {"off": False, "off, again": False, "on": True}


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    runs = 40 if quick else 200
    base_url = lab.model(_script())
    loop = loops[0]
    return [
        *_time_to_memory(lab, base_url, loop, runs, repeats=1 if quick else 3),
        *_cost_to_agents(lab, base_url, loop, quick=quick),
        *_close(lab, base_url, loop, count=2 if quick else 8),
    ]


def _script() -> Script:
    work = [tool_call("exec_command", {"cmd": "true"}).times(TURNS - 1).after(LATENCY_S)]
    return Script(
        conversations=tuple(
            it
            for one, two in (OURS, BASELINES)
            for it in (extraction(one, LATENCY_S), consolidation(two, LATENCY_S))
        ),
        default=script_for("", [*work, text("done").after(LATENCY_S)]),
    )


# --- from the ends of runs to a memory ------------------------------------------------------------


def _time_to_memory(lab: Lab, base_url: str, loop: str, runs: int, *, repeats: int) -> list[Figure]:
    memory = _start(lab, base_url, loop)[0]
    figures: list[Figure] = []
    first = 0
    for name, scopes in (("one scope", 1), ("20 scopes", 20)):
        walls: list[float] = []
        calls: dict[str, list[float]] = {"extract": [], "merge": []}
        for repeat in range(repeats):
            named = [f"{name} {repeat} {number}" for number in range(scopes)]
            before = memory.ask(do="phases")
            use = {"batch_size": BATCH if scopes == 1 else runs // scopes}
            texts = [f"Work {number}, please." for number in range(runs)]
            memory.ask(do="end_runs", texts=texts, scopes=named, first=first, use=use)
            walls.append(memory.ask(do="settle", scopes=named, runs=runs)["wall_s"])
            after = memory.ask(do="phases")
            for step, values in calls.items():
                key = f"{step}_answers"
                values.append(after[key] - before[key])
            first += runs
        figures += [
            _figure(f"last of {runs} ends to the memory, {name}", "s", loop, "memory", walls),
            _figure(
                f"model calls of {runs} extractions, {name}",
                "calls",
                loop,
                "memory",
                calls["extract"],
                wanted_at_most=runs,
            ),
            _figure(
                f"model calls of consolidations, {name}", "calls", loop, "memory", calls["merge"]
            ),
        ]
    figures.append(
        _opening(memory, loop, f"one scope {repeats - 1} 0", times=10 * repeats, of=runs)
    )
    lab.close_programs()
    return figures


def _opening(memory: Program, loop: str, scope: str, *, times: int, of: int) -> Figure:
    took: dict[str, list[float]] = {"": [], scope: []}
    for _ in range(times):
        for name, values in took.items():
            values.append(memory.ask(do="open", scope=name)["wall_s"] * 1000)
    return Figure(
        benchmark="memory_consolidation",
        measure=f"open a workspace, memory of {of} runs",
        unit="ms",
        loop=loop,
        ours=Series("with memory", took[scope]),
        baseline=Series("without", took[""]),
    )


# --- the effect on a running agent ----------------------------------------------------------------


def _cost_to_agents(lab: Lab, base_url: str, loop: str, *, quick: bool) -> list[Figure]:
    memory, common = _start(lab, base_url, loop)
    agents = lab.start("memory_agents", "sandstream", **common)
    agents.ask(do="open", names=list(KINDS), count=SESSIONS)
    rates: dict[str, list[float]] = {name: [] for name in KINDS}
    count, runs = (2, 2) if quick else (12, 5)
    total = 0
    for number in repetitions(count + 1, within_s=150):
        for index in range(len(KINDS)):
            name = list(KINDS)[(index + number) % len(KINDS)]
            wall_s = agents.ask(do="runs", name=name, generates=KINDS[name], runs=runs)["wall_s"]
            if KINDS[name]:
                total += SESSIONS * runs
                memory.ask(do="settle", scopes=[name], runs=1)
            if number:  # the first round is a warm-up
                rates[name].append(SESSIONS * runs / wall_s)
    agents.ask(do="close")
    lab.close_programs()
    return [
        Figure(
            benchmark="memory_consolidation",
            measure=f"{SESSIONS} agents at work, model {LATENCY_S * 1000:.0f} ms",
            unit="runs/s",
            loop=loop,
            better="higher",
            ours=Series(f"memory {name}", rates[name]),
            baseline=Series("memory off", rates["off"]),
            wanted_ratio=1 - MAX_COST if name == "on" else None,
        )
        for name in ("off, again", "on")
    ]


# --- the delay at the end of a run ----------------------------------------------------------------


def _close(lab: Lab, base_url: str, loop: str, *, count: int) -> list[Figure]:
    _, common = _start(lab, base_url, loop)
    sides = {side: lab.start("memory_agents", side, **common) for side in ("sandstream", "agents")}
    took: dict[tuple[str, bool], list[float]] = {}
    for number in range(count + 1):
        for side, program in sides.items():
            for memory in (False, True):
                wall_ms = program.ask(do="own", memory=memory)["wall_s"] * 1000
                if number:
                    took.setdefault((side, memory), []).append(wall_ms)
    lab.close_programs()
    what = "a run with a sandbox of its own"
    return [
        _pair(f"{what}, memory on", loop, took, ("sandstream", True), ("agents", True), 0.8),
        _pair(f"{what}, memory off", loop, took, ("sandstream", False), ("agents", False), None),
        _pair(
            f"{what}, on beside off", loop, took, ("sandstream", True), ("sandstream", False), 1.2
        ),
        _pair(f"{what}, on beside off", loop, took, ("agents", True), ("agents", False), None),
    ]


def _pair(
    measure: str,
    loop: str,
    took: dict[tuple[str, bool], list[float]],
    ours: tuple[str, bool],
    baseline: tuple[str, bool],
    wanted: float | None,
) -> Figure:
    return Figure(
        benchmark="memory_consolidation",
        measure=measure,
        unit="ms",
        loop=loop,
        ours=Series(f"{ours[0]} {'on' if ours[1] else 'off'}", took[ours]),
        baseline=Series(f"{baseline[0]} {'on' if baseline[1] else 'off'}", took[baseline]),
        wanted_ratio=wanted,
    )


# --- all ------------------------------------------------------------------------------------------


def _start(lab: Lab, base_url: str, loop: str) -> tuple[Program, dict[str, Any]]:
    """A memory actor and a sandbox actor, each in its own process."""
    common: dict[str, Any] = {"loop": loop, "base_url": base_url, "home": lab.fast_home()}
    sandboxes = lab.start("measured_sandbox_actor", "sandstream", **common)
    sandboxes.wait_ready()  # it starts the server
    memory = lab.start("measured_memory_actor", "sandstream", **common)
    memory.wait_ready()
    return memory, common


def _figure(
    measure: str,
    unit: str,
    loop: str,
    side: str,
    values: list[float],
    wanted_at_most: float | None = None,
    better: Better = "lower",
) -> Figure:
    return Figure(
        benchmark="memory_consolidation",
        measure=measure,
        unit=unit,
        loop=loop,
        better=better,
        ours=Series(side, values),
        wanted_at_most=wanted_at_most,
    )
