"""(a) The cost of a turn besides the model: ten turns with a trivial tool, model latency 0."""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

from sandstream.testing import Script, script_for, text, tool_call

TURNS = 10


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    steps = [tool_call("add", {"a": 1, "b": 2}).times(TURNS - 1), text("done")]
    base_url = lab.model(Script(default=script_for("", steps)))
    count, runs = (3, 2) if quick else (7, 5)
    return [_one_loop(lab, base_url, loop, count, runs) for loop in loops]


def _one_loop(lab: Lab, base_url: str, loop: str, count: int, runs: int) -> Figure:
    home = lab.home()
    took: dict[str, list[float]] = {"sandstream": [], "agents": []}
    sides = {
        side: lab.start("agent_runs", side, loop=loop, base_url=base_url, home=home)
        for side in took
    }
    for program in sides.values():
        program.ask(do="in_turn", runs=2, turns=TURNS)
    for _ in repetitions(count, within_s=20):
        for side, program in sides.items():
            answer = program.ask(do="in_turn", runs=runs, turns=TURNS)
            took[side].append(answer["wall_s"] * 1000 / runs / TURNS)
    lab.close_programs()
    return Figure(
        benchmark="turn_overhead",
        measure="wall per turn",
        unit="ms",
        loop=loop,
        ours=Series("sandstream", took["sandstream"]),
        baseline=Series("agents", took["agents"]),
        wanted_ratio=0.5,
    )
