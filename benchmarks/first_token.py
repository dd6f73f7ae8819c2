"""(c) Time to the first token of a streamed answer, warm: bare client, ours, baseline."""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab

from sandstream.testing import Script, script_for, text


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    answer = text("This is an answer of several words, streamed word by word.").forever()
    base_url = lab.model(Script(default=script_for("", [answer])))
    repetitions, runs = (3, 10) if quick else (10, 10)
    figures: list[Figure] = []
    for loop in loops:
        home = lab.home()
        took: dict[str, list[float]] = {"openai": [], "sandstream": [], "agents": []}
        sides = {
            side: lab.start("agent_runs", side, loop=loop, base_url=base_url, home=home)
            for side in took
        }
        for program in sides.values():
            program.ask(do="stream", runs=5)
        for _ in range(repetitions):
            for side, program in sides.items():
                seconds = program.ask(do="stream", runs=runs)["first_token_s"]
                took[side].extend(value * 1000 for value in seconds)
        lab.close_programs()
        bare = Series("bare openai", took["openai"])
        ours = Series("sandstream", took["sandstream"])
        peer = Series("agents", took["agents"])
        figures.append(_figure(loop, ours, bare, wanted_extra=3.0))
        figures.append(_figure(loop, ours, peer, wanted_extra=None))
    return figures


def _figure(loop: str, ours: Series, other: Series, wanted_extra: float | None) -> Figure:
    return Figure(
        benchmark="first_token",
        measure="time to first token",
        unit="ms",
        loop=loop,
        ours=ours,
        baseline=other,
        wanted_extra=wanted_extra,
    )
