"""(e) A fresh process to the end of its first run of one turn: import, private server, run."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from figures import Figure, Series
from lab import Lab, ProgramFailed, repetitions

from sandstream.testing import Script, script_for, text


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    base_url = lab.model(Script(default=script_for("", [text("done").forever()])))
    count = 1 if quick else 4
    warm_home = lab.home()
    took: dict[str, list[float]] = {"new": [], "running": [], "agents": []}
    for side in ("running", "agents"):
        _start(lab, side, base_url, warm_home)  # fills the caches of compiled modules
    for _ in repetitions(count, within_s=35):
        for side, values in took.items():
            home = lab.home() if side == "new" else warm_home
            values.append(_start(lab, side, base_url, home) * 1000)
            if side == "new":
                lab.stop_server(home)
    return [
        Figure(
            benchmark="cold_start",
            measure="process start to first answer",
            unit="ms",
            ours=Series(name, took[side]),
            baseline=Series("agents", took["agents"]),
            wanted_ratio=1.0,
        )
        for side, name in (("new", "no server yet"), ("running", "server is up"))
    ]


def _start(lab: Lab, side: str, base_url: str, home: Path) -> float:
    command = lab.command("cold", "agents" if side == "agents" else "sandstream")
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=lab.environment(base_url, home, side), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - began
    if b'"done"' not in line:
        raise ProgramFailed(f"cold.py {side} answered {line!r}")
    return took
