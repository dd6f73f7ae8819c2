"""The axes of single runs: concurrent runs, turns, children, boxes."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import processes
from curves import Point, best_of
from installations import LAYOUTS, LOOP, Installation, Used, alone, beside, deployed, total_cpu_ms
from lab import Lab

from sandstream.testing import Conversation, Script, script_for, text, tool_call, tool_calls

RUN_TURNS = 5
WITHIN_S = 280.0
"""A longer measurement reports what has ended until then."""


# --- runs at once ---------------------------------------------------------------------------------


def runs_at_once(
    sizes: Sequence[int], layouts: Sequence[str], latencies_ms: Sequence[int], rounds: int
) -> Iterator[Point]:
    """Runs of five turns, all submitted at once, each time on a fresh log."""
    for layout, latency_ms, size in itertools.product(layouts, latencies_ms, sizes):
        yield best_of(functools.partial(_runs_at_once, layout, latency_ms, size), rounds)


def plain_run(latency_s: float) -> Conversation:
    call = tool_call("add", {"a": 1, "b": 2}).times(RUN_TURNS - 1).after(latency_s)
    return script_for("", [call, text("done").after(latency_s)])


def _runs_at_once(layout: str, latency_ms: int, size: int) -> Point:
    with Lab() as lab:
        base_url = lab.model(Script(default=plain_run(latency_ms / 1000)))
        installed = open_layout(lab, base_url, layout)
        installed.ask(do="at_once", runs=20, turns=RUN_TURNS)  # warm
        used = installed.ask(do="at_once", runs=size, turns=RUN_TURNS, within_s=WITHIN_S)
    wall_s, ended = used.answer["wall_s"], used.answer["ended"]
    half = used.answer["half_s"] / wall_s
    return Point(
        axis="runs",
        layout=layout,
        measure=f"runs at once, model {latency_ms} ms",
        size=size,
        value=ended / wall_s,
        unit="runs/s",
        better="higher",
        work="run",
        cpu_ms=used.cpu_ms_per(ended or size),
        peak_mb=used.peak_mb,
        others=used.others,
        note=f"half ended after {half:.0%} of the time"
        + (f"; {size - ended} did not end" if ended < size else ""),
    )


def open_layout(lab: Lab, base_url: str, layout: str) -> Installation:
    if layout == "in the caller":
        return alone(lab, base_url, "agent_runs", do="at_once", runs=1, turns=RUN_TURNS)
    return deployed(lab, base_url, LAYOUTS.index(layout) + 1)


# --- turns of one run -----------------------------------------------------------------------------


def turns_of_a_run(sizes: Sequence[int], layouts: Sequence[str], rounds: int) -> Iterator[Point]:
    """One run of this many turns, model latency 0."""
    call = tool_call("add", {"a": 1, "b": 2})
    long = [script_for(f"Do {size},", [call.times(size - 1), text("done")]) for size in sizes]
    script = Script(conversations=tuple(long), default=plain_run(0))
    for layout in layouts:
        with Lab() as lab:
            installed = open_layout(lab, lab.model(script), layout)
            installed.ask(do="at_once", runs=20, turns=RUN_TURNS)  # warm
            for size in sizes:
                yield best_of(functools.partial(_turns, installed, size), rounds)


def _turns(installed: Installation, size: int) -> Point:
    runs = max(1, min(10, 100 // size))
    used = installed.ask(do="in_turn", runs=runs, turns=size, ask=f"Do {size}, case")
    return Point(
        axis="turns",
        layout=installed.layout,
        measure="one run, wall per turn",
        size=size,
        value=statistics.median(used.answer["each_s"]) * 1000 / size,
        unit="ms",
        work="turn",
        cpu_ms=used.cpu_ms_per(runs * size),
        peak_mb=used.peak_mb,
        others=used.others,
    )


# --- children of one run --------------------------------------------------------------------------


def children_of_a_run(sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """One run that calls this many agents as tools in one answer, model latency 0."""
    for is_beside in (True, False):
        with Lab() as lab:
            base_url = lab.model(_orchestrators(sizes))
            first: dict[str, Any] = {"do": "fan_out", "runs": 1, "size": sizes[0]}
            if is_beside:
                installed = beside(lab, base_url, "compositions")
                installed.ask(**first, pool=installed.pool)
            else:
                installed = alone(lab, base_url, "compositions", **first)
            for size in sizes:
                yield best_of(functools.partial(_children, installed, size), rounds)


def _orchestrators(sizes: Sequence[int]) -> Script:
    def calls(size: int) -> list[tuple[str, dict[str, Any]]]:
        return [(f"ask_{number}", {"input": f"Question {number}"}) for number in range(size)]

    asking = [
        script_for(f"Ask all {size},", [tool_calls(*calls(size)), text("done")]) for size in sizes
    ]
    return Script(conversations=tuple(asking), default=script_for("", [text("known")]))


def _children(installed: Installation, size: int) -> Point:
    runs = max(1, min(10, 100 // size))
    installed.ask(do="fan_out", runs=1, size=size, pool=installed.pool)  # warm
    used = installed.ask(do="fan_out", runs=runs, size=size, pool=installed.pool)
    return Point(
        axis="children",
        layout=installed.layout,
        measure="one run, wall per child",
        size=size,
        value=used.answer["wall_s"] * 1000 / runs / size,
        unit="ms",
        work="child",
        cpu_ms=used.cpu_ms_per(runs * size),
        peak_mb=used.peak_mb,
        others=used.others,
    )


# --- boxes ----------------------------------------------------------------------------------------


def boxes_at_once(sizes: Sequence[int]) -> Iterator[Point]:
    """This many local sandboxes at once: start, a command in each, a command in one."""
    for size in sizes:
        with Lab() as lab:
            home = lab.fast_home()
            caller = lab.start("sandbox_sessions", "sandstream", home=home, loop=LOOP)
            caller.ask(do="open", count=1)  # starts the server and the actor
            caller.ask(do="exec", times=5)
            caller.ask(do="close")
            roles = {"nats-server": lab.server_pids(home), "caller": [caller.pid]}
            installed = Installation("in the caller", home, {}, caller, roles)
            yield from _boxes(installed, size)


def _boxes(installed: Installation, size: int) -> Iterator[Point]:
    """A small number of boxes is started and used several times, to get measurable values."""
    rounds = max(1, 10 // size)
    opened: list[Used] = []
    commands: list[Used] = []
    for number in range(rounds):
        opened.append(installed.ask(do="open", count=size))
        commands.append(installed.ask(do="exec_each"))
        if number < rounds - 1:
            installed.ask(do="close")
    one = installed.ask(do="exec", times=20)
    inside = processes.proportional_mb(processes.descendants(installed.caller.pid))
    note = f"boxes: {inside / size:.1f} MB each"

    def point(measure: str, work: str, value_s: float, used: list[Used], count: int) -> Point:
        return Point(
            axis="boxes",
            layout=installed.layout,
            measure=measure,
            size=size,
            value=value_s * 1000,
            unit="ms",
            work=work,
            cpu_ms=total_cpu_ms(used, count),
            peak_mb=used[-1].peak_mb,
            note=note,
        )

    def each_s(used: list[Used]) -> float:
        return statistics.median(float(it.answer["wall_s"]) for it in used) / size

    yield point("start at once, each", "box", each_s(opened), opened, size * rounds)
    yield point("a command in each at once", "box", each_s(commands), commands, size * rounds)
    yield point("a command in one", "command", statistics.median(one.answer["exec_s"]), [one], 20)
    installed.ask(do="close")
