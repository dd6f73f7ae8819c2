"""(u) Sandboxes in Docker containers, both sides on the same engine.

Uses the engine of DOCKER_HOST, or starts one as the tests do. Only one event loop is measured: the
time goes to the engine and to files.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, Series
from lab import Lab, Program, repetitions

from sandstream.testing import Script, script_for, text, tool_call

IMAGE = "sandstream-test:python"
FILES = 10_000
FILE_BYTES = 10_000
TURNS = 10
WAYS = {"sandstream": "agent in the box", "sandstream-shell": "shell box"}
POOLED = "sandstream-pool"
"""With containers that were started before; only new boxes are measured."""
_SCRIPTS = Path(__file__).parent.parent / "tests" / "engine"


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    steps = [tool_call("exec_command", {"cmd": "true"}).times(TURNS - 1), text("done")]
    base_url = lab.model(Script(default=script_for("", steps)))
    with _engine() as url:
        home = lab.fast_home()
        settings = {"BENCH_IMAGE": IMAGE, "DOCKER_HOST": url}
        sides = {
            side: lab.start(
                "sandbox_sessions",
                side,
                loop=loops[0],
                base_url=base_url,
                home=home,
                settings=settings,
            )
            for side in (*WAYS, POOLED, "agents")
        }
        took = _measured(sides, quick)
        lab.close_programs()
    return list(_figures(took, loops[0], FILES // 5 if quick else FILES))


@contextlib.contextmanager
def _engine() -> Iterator[str]:
    given = os.environ.get("DOCKER_HOST", "")
    if given:
        subprocess.run([_SCRIPTS / "base_image.sh"], check=True)
        yield given
        return
    said = subprocess.run([_SCRIPTS / "up.sh"], check=True, stdout=subprocess.PIPE, text=True)
    url = said.stdout.split("DOCKER_HOST=")[1].split()[0]
    try:
        env = os.environ | {"DOCKER_HOST": url}
        subprocess.run([_SCRIPTS / "base_image.sh"], check=True, env=env)
        yield url
    finally:
        subprocess.run([_SCRIPTS / "down.sh"], check=True)


Took = dict[str, dict[str, list[float]]]
"""Milliseconds by what was measured, then by side."""


def _measured(sides: dict[str, Program], quick: bool) -> Took:
    took: Took = {}

    def note(what: str, side: str, seconds: list[float]) -> None:
        took.setdefault(what, {}).setdefault(side, []).extend(it * 1000 for it in seconds)

    pooled = sides.pop(POOLED)
    pooled.ask(do="first")  # begins to fill the pool
    for program in sides.values():
        program.ask(do="open", count=1)
        program.ask(do="exec", times=5)
        program.ask(do="runs", runs=1, turns=TURNS, own=False)
    for _ in repetitions(2 if quick else 5, within_s=60):
        for side, program in sides.items():
            note("exec", side, program.ask(do="exec", times=10 if quick else 30)["exec_s"])
            note("first", side, [program.ask(do="first")["first_s"]])
            wall_s = program.ask(do="runs", runs=1, turns=TURNS, own=False)["wall_s"]
            note("turn", side, [wall_s / TURNS])
        note("first", POOLED, [pooled.ask(do="first")["first_s"]])
    for program in sides.values():
        program.ask(do="close")
    files = FILES // 5 if quick else FILES
    for number in repetitions(1 if quick else 3, within_s=180):
        for side, program in sides.items():
            answer = program.ask(do="snapshots", files=files, size=FILE_BYTES + number)
            for name, seconds in answer.items():
                note(name, side, [seconds])
    return took


def _figures(took: Took, loop: str, files: int) -> Iterator[Figure]:
    size = f"{files * FILE_BYTES // 1_000_000} MB in {files} files"
    measures: dict[str, tuple[str, dict[str, float]]] = {
        "exec": ("exec('true')", {"sandstream": 1 / 15, "sandstream-shell": 1}),
        "turn": ("wall per turn of a ten-turn run", {"sandstream": 1}),
        "first": ("create to the end of the first command", {}),
        "cold_s": (f"stop, nothing stored before, {size}", {}),
        "again_s": (f"stop after a change of one file, {size}", {"sandstream": 0.1}),
        "resume_s": (f"resume where no files are left, {size}", {}),
    }
    for name, (measure, wanted) in measures.items():
        ways = WAYS | ({POOLED: "from the warm pool"} if name == "first" else {})
        for side, way in ways.items():
            yield Figure(
                benchmark="docker_sandboxes",
                measure=f"{measure}, {way}",
                unit="ms",
                loop=loop,
                ours=Series("sandstream", took[name][side]),
                baseline=Series("agents", took[name]["agents"]),
                wanted_ratio=wanted.get(side),
            )
