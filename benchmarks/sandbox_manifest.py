"""(i) A sandbox from a manifest of 200 files: create it and remove it."""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

FILES = 200
_PARTS = {"start": "create and start", "delete": "delete"}


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    return [figure for loop in loops for figure in _one_loop(lab, loop, 3 if quick else 8)]


def _one_loop(lab: Lab, loop: str, count: int) -> list[Figure]:
    home = lab.fast_home()
    took: dict[str, dict[str, list[float]]] = {
        part: {"sandstream": [], "agents": []} for part in _PARTS
    }
    sides = {
        side: lab.start("sandbox_sessions", side, loop=loop, home=home)
        for side in ("sandstream", "agents")
    }
    for program in sides.values():
        program.ask(do="manifest", files=2)
    for _ in repetitions(count, within_s=40):
        for side, program in sides.items():
            answer = program.ask(do="manifest", files=FILES)
            for part, values in took.items():
                values[side].append(answer[f"{part}_s"] * 1000)
    lab.close_programs()
    return [
        Figure(
            benchmark="sandbox_manifest",
            measure=f"{what}, {FILES} files",
            unit="ms",
            loop=loop,
            ours=Series("sandstream", took[part]["sandstream"]),
            baseline=Series("agents", took[part]["agents"]),
            wanted_ratio=1 if part == "start" else None,
        )
        for part, what in _PARTS.items()
    ]
