"""(c) Time to the first token of a streamed answer, warm: bare client, ours, baseline.

Measured twice: with words 10 ms apart, as a model writes, and with the whole answer at once, where
the first token competes with the processing of all that follow.
"""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

from sandstream.testing import Script, script_for, text

_WORDS = "This answer is streamed in some pieces, each of a few words, and then it ends."
_MEASURES = {"paced": "first token, paced", "burst": "first token, all at once"}


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    answer = text(_WORDS).forever()
    script = Script(
        conversations=(
            script_for("paced", [answer.chunks(4, delta_delay_s=0.01)]),
            script_for("burst", [answer]),
        )
    )
    base_url = lab.model(script)
    count = 3 if quick else 6
    return [figure for loop in loops for figure in _one_loop(lab, base_url, loop, count)]


def _one_loop(lab: Lab, base_url: str, loop: str, count: int) -> list[Figure]:
    home = lab.home()
    sides = {
        side: lab.start("agent_runs", side, loop=loop, base_url=base_url, home=home)
        for side in ("openai", "sandstream", "agents")
    }
    for program in sides.values():
        program.ask(do="stream", runs=5, input="burst")
    figures: list[Figure] = []
    for kind, measure in _MEASURES.items():
        took: dict[str, list[float]] = {side: [] for side in sides}
        for _ in repetitions(count, within_s=12):
            for side, program in sides.items():
                seconds = program.ask(do="stream", runs=10, input=kind)["first_token_s"]
                took[side].extend(value * 1000 for value in seconds)
        for side, name in (("openai", "bare openai"), ("agents", "agents")):
            figures.append(
                Figure(
                    benchmark="first_token",
                    measure=measure,
                    unit="ms",
                    loop=loop,
                    ours=Series("sandstream", took["sandstream"]),
                    baseline=Series(name, took[side]),
                    wanted_extra=3.0 if side == "openai" else None,
                )
            )
    lab.close_programs()
    return figures
