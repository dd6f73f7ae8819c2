"""A conversation of two runs in an in-memory `SQLiteSession`, model latency 0."""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

from sandstream.testing import Script, script_for, text

MESSAGES = 2


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    steps = [text(f"answer {number}") for number in range(MESSAGES)]
    base_url = lab.model(Script(default=script_for("", steps)))
    count, runs = (3, 5) if quick else (9, 15)
    return [_one_loop(lab, base_url, loop, count, runs) for loop in loops]


def _one_loop(lab: Lab, base_url: str, loop: str, count: int, runs: int) -> Figure:
    home = lab.home()
    took: dict[str, list[float]] = {"sandstream": [], "agents": []}
    sides = {
        side: lab.start("compositions", side, loop=loop, base_url=base_url, home=home)
        for side in took
    }
    for program in sides.values():
        program.ask(do="conversation", runs=3, size=MESSAGES)
    for _ in repetitions(count, within_s=20):
        for side, program in sides.items():
            answer = program.ask(do="conversation", runs=runs, size=MESSAGES)
            took[side].append(answer["wall_s"] * 1000 / runs)
    lab.close_programs()
    return Figure(
        benchmark="session_runs",
        measure=f"conversation of {MESSAGES} runs",
        unit="ms",
        loop=loop,
        ours=Series("sandstream", took["sandstream"]),
        baseline=Series("agents", took["agents"]),
        wanted_ratio=1.0,
    )
