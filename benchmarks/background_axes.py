"""The axes around a run: the size of the log, and the number of parked runs in it.

The same probe is measured at each size: ten-turn runs one after another, and 200 runs at once.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import past_log
from curves import Point, best_of
from installations import Installation, deployed
from lab import Lab
from run_axes import RUN_TURNS, WITHIN_S, plain_run

from sandstream.testing import Script, script_for, text, tool_call

PROBE_TURNS = 10
_OPEN_RUNS = 150
"""How many of the runs in the log are running; the same number waits for an approval."""
_COMMAND_LIMIT_S = 120.0


def log_sizes(sizes: Sequence[int], *, quick: bool, rounds: int) -> Iterator[Point]:
    """A log with this many events of other runs: the probe, and the commands that inspect runs."""
    with Lab() as lab:
        installed = _installation(lab)
        written, runs = 0, 0
        for size in sizes:
            filled = _fill(
                installed,
                events=size - written,
                first=runs,
                running=0 if runs else _OPEN_RUNS,
                waiting=0 if runs else _OPEN_RUNS,
            )
            written += filled.events
            runs += filled.finished + len(filled.running) + len(filled.waiting)
            yield from _probe(installed, "log", size, rounds, quick=quick)
            run = f"past-{runs // 2:07d}"
            looks = [["runs"], ["runs", "--status", "running"], ["show", run], ["doctor"]]
            yield from _commands(installed, "log", size, rounds, looks)


def parked_runs(sizes: Sequence[int], *, quick: bool, rounds: int) -> Iterator[Point]:
    """This many other runs wait for an approval: the probe, and the list of approvals."""
    with Lab() as lab:
        installed = _installation(lab)
        parked, runs = 0, 0
        for size in sizes:
            if size > parked:
                filled = _fill(installed, events=1, first=runs, running=0, waiting=size - parked)
                parked = size
                runs += filled.finished + len(filled.waiting)
            yield from _probe(installed, "parked", size, rounds, quick=quick)
            yield from _commands(installed, "parked", size, rounds, [["approvals"]])


def _installation(lab: Lab) -> Installation:
    steps = [tool_call("add", {"a": 1, "b": 2}).times(PROBE_TURNS - 1), text("done")]
    script = Script(conversations=(script_for("Probe", steps),), default=plain_run(0.05))
    installed = deployed(lab, lab.model(script), 1)
    installed.ask(do="at_once", runs=20, turns=RUN_TURNS)  # warm
    return installed


def _fill(
    installed: Installation, *, events: int, first: int, running: int, waiting: int
) -> past_log.Filled:
    access = installed.access()
    return asyncio.run(
        past_log.fill(
            access.url,
            events,
            first=first,
            running=running,
            waiting=waiting,
            user=access.user,
            password=access.password,
        )
    )


def _probe(
    installed: Installation, axis: str, size: int, rounds: int, *, quick: bool
) -> Iterator[Point]:
    single, many = (5, 50) if quick else (10, 200)
    yield best_of(functools.partial(_one_by_one, installed, axis, size, single), rounds)
    yield best_of(functools.partial(_at_once, installed, axis, size, many), rounds)


def _one_by_one(installed: Installation, axis: str, size: int, runs: int) -> Point:
    used = installed.ask(do="in_turn", runs=runs, turns=PROBE_TURNS, ask="Probe")
    return Point(
        axis=axis,
        layout=installed.layout,
        measure=f"one run of {PROBE_TURNS} turns, wall per turn",
        size=size,
        value=statistics.median(used.answer["each_s"]) * 1000 / PROBE_TURNS,
        unit="ms",
        work="turn",
        cpu_ms=used.cpu_ms_per(runs * PROBE_TURNS),
        peak_mb=used.peak_mb,
        others=used.others,
    )


def _at_once(installed: Installation, axis: str, size: int, runs: int) -> Point:
    used = installed.ask(do="at_once", runs=runs, turns=RUN_TURNS, within_s=WITHIN_S)
    ended = used.answer["ended"]
    return Point(
        axis=axis,
        layout=installed.layout,
        measure=f"{runs} runs at once, model 50 ms",
        size=size,
        value=ended / used.answer["wall_s"],
        unit="runs/s",
        better="higher",
        work="run",
        cpu_ms=used.cpu_ms_per(ended or runs),
        peak_mb=used.peak_mb,
        others=used.others,
        note=f"{runs - ended} did not end" if ended < runs else "",
    )


def _commands(
    installed: Installation, axis: str, size: int, rounds: int, commands: Sequence[list[str]]
) -> Iterator[Point]:
    for command in commands:
        took_s, note = _command(installed, command, rounds)
        yield Point(
            axis=axis,
            layout=installed.layout,
            measure="sandstream " + " ".join(it for it in command if not it.startswith("past-")),
            size=size,
            value=took_s,
            unit="s",
            note=note,
        )


def _command(installed: Installation, command: list[str], times: int) -> tuple[float, str]:
    """The least wall time, and the size of the output: an empty list must not count as fast."""
    program = str(Path(sys.executable).with_name("sandstream"))
    took: list[float] = []
    note = ""
    for _ in range(times):
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [program, *command, "--json"],
                env=installed.environment,
                capture_output=True,
                timeout=_COMMAND_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _COMMAND_LIMIT_S, f"not done after {_COMMAND_LIMIT_S:.0f} s"
        took.append(time.perf_counter() - began)
        note = f"lines of output: {len(done.stdout.splitlines())}"
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            note = f"exit code {done.returncode}: {lines[-1] if lines else ''}"[:100]
        if took[-1] > 10:
            break  # once is enough to see that it is slow
    return min(took), note
