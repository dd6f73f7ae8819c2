"""A run that waits for an approval, saved as text and resumed: run, `to_state`, `to_string`,
`from_string`, `approve`, run to the end. Model latency 0; measures the whole, and the part from the
text on.
"""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

from sandstream.testing import Script, script_for, text, tool_call


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    steps = [tool_call("pay", {"amount": 7}), text("done")]
    base_url = lab.model(Script(default=script_for("", steps)))
    count, runs = (3, 5) if quick else (9, 15)
    return [figure for loop in loops for figure in _one_loop(lab, base_url, loop, count, runs)]


def _one_loop(lab: Lab, base_url: str, loop: str, count: int, runs: int) -> list[Figure]:
    home = lab.home()
    whole: dict[str, list[float]] = {"sandstream": [], "agents": []}
    resumed: dict[str, list[float]] = {"sandstream": [], "agents": []}
    sides = {
        side: lab.start("compositions", side, loop=loop, base_url=base_url, home=home)
        for side in whole
    }
    for program in sides.values():
        program.ask(do="approval", runs=3)
    for _ in repetitions(count, within_s=20):
        for side, program in sides.items():
            answer = program.ask(do="approval", runs=runs)
            whole[side].append(answer["wall_s"] * 1000 / runs)
            resumed[side].append(answer["last_part_s"] * 1000 / runs)
    lab.close_programs()
    return [
        Figure(
            benchmark="approval_resume",
            measure=measure,
            unit="ms",
            loop=loop,
            ours=Series("sandstream", took["sandstream"]),
            baseline=Series("agents", took["agents"]),
            wanted_ratio=1.0,
        )
        for measure, took in (("whole", whole), ("from the text to the end", resumed))
    ]
