"""A chain of five handoffs, model latency 0: the cost of a handoff, including its model call."""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

from sandstream.testing import Script, script_for, text, tool_call

HANDOFFS = 5


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    steps = [tool_call(f"transfer_to_desk{number}", {}) for number in range(1, HANDOFFS + 1)]
    base_url = lab.model(Script(default=script_for("", [*steps, text("done")])))
    count, runs = (3, 4) if quick else (9, 10)
    return [_one_loop(lab, base_url, loop, count, runs) for loop in loops]


def _one_loop(lab: Lab, base_url: str, loop: str, count: int, runs: int) -> Figure:
    home = lab.home()
    took: dict[str, list[float]] = {"sandstream": [], "agents": []}
    sides = {
        side: lab.start("compositions", side, loop=loop, base_url=base_url, home=home)
        for side in took
    }
    for program in sides.values():
        program.ask(do="handoffs", runs=3, size=HANDOFFS)
    for _ in repetitions(count, within_s=20):
        for side, program in sides.items():
            answer = program.ask(do="handoffs", runs=runs, size=HANDOFFS)
            took[side].append(answer["wall_s"] * 1000 / runs / HANDOFFS)
    lab.close_programs()
    return Figure(
        benchmark="handoff_chain",
        measure="wall per handoff",
        unit="ms",
        loop=loop,
        ours=Series("sandstream", took["sandstream"]),
        baseline=Series("agents", took["agents"]),
        wanted_ratio=1.0,
    )
