"""(h) Ten turns of a sandbox agent with one command each, model latency 0."""

from __future__ import annotations

from figures import Figure, Series
from lab import Lab, repetitions

from sandstream.testing import Script, script_for, text, tool_call

TURNS = 10
_WAYS = {False: "in one session", True: "each run with a sandbox of its own"}


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    steps = [tool_call("exec_command", {"cmd": "true"}).times(TURNS - 1), text("done")]
    base_url = lab.model(Script(default=script_for("", steps)))
    count, runs = (2, 1) if quick else (6, 3)
    return [figure for loop in loops for figure in _one_loop(lab, base_url, loop, count, runs)]


def _one_loop(lab: Lab, base_url: str, loop: str, count: int, runs: int) -> list[Figure]:
    home = lab.fast_home()
    took: dict[bool, dict[str, list[float]]] = {
        own: {"sandstream": [], "agents": []} for own in _WAYS
    }
    sides = {
        side: lab.start("sandbox_sessions", side, loop=loop, base_url=base_url, home=home)
        for side in ("sandstream", "agents")
    }
    for program in sides.values():
        program.ask(do="open", count=1)
        for own in _WAYS:
            program.ask(do="runs", runs=1, turns=TURNS, own=own)
    for _ in repetitions(count, within_s=40):
        for own, values in took.items():
            for side, program in sides.items():
                answer = program.ask(do="runs", runs=runs, turns=TURNS, own=own)
                values[side].append(answer["wall_s"] * 1000 / runs / TURNS)
    for program in sides.values():
        program.ask(do="close")
    lab.close_programs()
    return [
        Figure(
            benchmark="sandbox_turns",
            measure=f"wall per turn, {way}",
            unit="ms",
            loop=loop,
            ours=Series("sandstream", took[own]["sandstream"]),
            baseline=Series("agents", took[own]["agents"]),
            wanted_ratio=1,
        )
        for own, way in _WAYS.items()
    ]
