"""(j) Snapshots of 100 MB in 10,000 files: first, after a change of one file, resume, fork.

The baseline archives everything each time it stops; ours stores what changed. Only one event loop
is measured: the time goes to files, not to the loop.
"""

from __future__ import annotations

import processes
from figures import Figure, Series
from lab import Lab, repetitions

FILES = 10_000
FILE_BYTES = 10_000


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    files = FILES // 5 if quick else FILES
    home = lab.fast_home()
    sides = {
        side: lab.start("sandbox_sessions", side, loop=loops[0], home=home)
        for side in ("sandstream", "agents")
    }
    for program in sides.values():
        program.ask(do="snapshots", files=200, size=100)
    took: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for round_number in repetitions(1 if quick else 4, within_s=150):
        for side, program in sides.items():
            # different contents each time; otherwise they are already in the store
            answer = program.ask(do="snapshots", files=files, size=FILE_BYTES + round_number)
            for name, seconds in answer.items():
                took[side].setdefault(name, []).append(seconds * 1000)
    peaks = {side: processes.peak_mb([program.pid]) for side, program in sides.items()}
    lab.close_programs()
    size = f"{files * FILE_BYTES // 1_000_000} MB in {files} files"

    def figure(
        measure: str, name: str, other: str = "", wanted: float | None = None, side: str = "agents"
    ) -> Figure:
        return Figure(
            benchmark="sandbox_snapshots",
            measure=f"{measure}, {size}",
            unit="ms",
            loop=loops[0],
            ours=Series("sandstream", took["sandstream"][name]),
            baseline=Series(side, took["agents"][other or name]),
            wanted_ratio=wanted,
        )

    return [
        figure("stop, nothing stored before", "cold_s", wanted=1),
        figure("stop after a change of one file", "again_s", wanted=0.1),
        figure("the same against tarfile", "again_s", "tar_s", wanted=0.1, side="tarfile"),
        figure("resume where no files are left", "resume_s", wanted=1),
        figure("fork: naming it", "name_fork_s"),
        figure("fork: until it is started", "fork_s", wanted=1),
        figure("stop of an unchanged fork", "fork_stop_s", wanted=1),
        Figure(
            benchmark="sandbox_snapshots",
            measure=f"peak memory of the caller (ours: and actor), {size}",
            unit="MB",
            loop=loops[0],
            ours=Series("sandstream", [peaks["sandstream"]]),
            baseline=Series("agents", [peaks["agents"]]),
        ),
    ]
