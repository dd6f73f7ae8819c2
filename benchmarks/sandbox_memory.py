"""(k) The cost of idle sandboxes: memory and processes; and twenty at once.

Memory is proportional (shared memory is counted once), because the agents in the boxes share code.
"""

from __future__ import annotations

import processes
from figures import Figure, Series
from lab import Lab, Program

SANDBOXES = 20


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    home = lab.fast_home()
    sides = {
        side: lab.start("sandbox_sessions", side, loop=loops[0], home=home)
        for side in ("sandstream", "agents")
    }
    count = SANDBOXES // 2 if quick else SANDBOXES
    actor = lab.start("measured_sandbox_actor", "sandstream", loop=loops[0], home=home)
    actor.ask(do="parts", times=20)
    read = {side: _Readings(program, count) for side, program in sides.items()}
    actor_mb = processes.proportional_mb([actor.pid])
    lab.close_programs()
    ours, peers = read["sandstream"], read["agents"]

    def figure(
        measure: str,
        unit: str,
        value: float,
        baseline: float | None = None,
        wanted_at_most: float | None = None,
    ) -> Figure:
        return Figure(
            benchmark="sandbox_memory",
            measure=measure,
            unit=unit,
            loop=loops[0],
            ours=Series("sandstream", [value]),
            baseline=None if baseline is None else Series("agents", [baseline]),
            wanted_at_most=wanted_at_most,
        )

    return [
        figure(f"start {count} at once, each", "ms", ours.start_ms, peers.start_ms),
        figure(f"a command in each of {count} at once, each", "ms", ours.exec_ms, peers.exec_ms),
        figure(f"caller and actor with {count} idle sandboxes", "MB", ours.caller, peers.caller),
        figure("caller and actor, growth per sandbox", "KB", ours.growth_kb, peers.growth_kb),
        figure("an actor in a process of its own", "MB", actor_mb),
        figure("one idle sandbox, its processes", "MB", ours.sandbox_mb, wanted_at_most=12),
        figure("processes of one sandbox", "count", ours.per_sandbox, wanted_at_most=2),
    ]


class _Readings:
    """The readings of one side, with one sandbox and with many."""

    def __init__(self, program: Program, count: int) -> None:
        program.ask(do="open", count=1)
        program.ask(do="exec", times=20)
        before = processes.proportional_mb([program.pid])
        self.start_ms = program.ask(do="open", count=count - 1)["wall_s"] * 1000 / (count - 1)
        self.exec_ms = program.ask(do="exec_each")["wall_s"] * 1000 / count
        self.caller = processes.proportional_mb([program.pid])
        self.growth_kb = (self.caller - before) * 1024 / (count - 1)
        inside = processes.descendants(program.pid)
        self.sandbox_mb = processes.proportional_mb(inside) / count
        self.per_sandbox = len(inside) / count
        program.ask(do="close")
