"""(g) A trivial command in a sandbox: through the bus, against the baseline's own spawn."""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

SIDES = {
    "agents": "",
    "sandstream": "actor in the caller's process",
    "sandstream-remote": "actor in another process",
}


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    count, times = (3, 40) if quick else (8, 150)
    return [figure for loop in loops for figure in _one_loop(lab, loop, count, times)]


def _one_loop(lab: Lab, loop: str, count: int, times: int) -> list[Figure]:
    home = lab.fast_home()
    actor = lab.start("measured_sandbox_actor", "sandstream", loop=loop, home=home)
    actor.wait_ready()
    took: dict[str, list[float]] = {side: [] for side in SIDES}
    parts: dict[str, list[float]] = {"box": [], "actor": []}
    sides = {side: lab.start("sandbox_sessions", side, loop=loop, home=home) for side in took}
    for program in sides.values():
        program.ask(do="open", count=1)
        program.ask(do="exec", times=20)
    actor.ask(do="parts", times=20)
    for _ in repetitions(count, within_s=30):
        for side, program in sides.items():
            took[side] += [it * 1000 for it in program.ask(do="exec", times=times)["exec_s"]]
        answer = actor.ask(do="parts", times=times)
        for part, values in parts.items():
            values += [it * 1000 for it in answer[f"{part}_s"]]
    for program in sides.values():
        program.ask(do="close")
    lab.close_programs()
    baseline = Series("agents", took["agents"])
    return [
        *(
            Figure(
                benchmark="sandbox_exec",
                measure=f"exec('true'), {where}",
                unit="ms",
                loop=loop,
                ours=Series("sandstream", took[side]),
                baseline=baseline,
                wanted_ratio=3,
            )
            for side, where in SIDES.items()
            if where
        ),
        Figure(
            benchmark="sandbox_exec",
            measure="delivery to reply in the actor, against the box alone",
            unit="ms",
            loop=loop,
            ours=Series("actor", parts["actor"]),
            baseline=Series("box", parts["box"]),
            wanted_extra=2,
        ),
    ]
