"""The list of crash points is complete: every call is in it, and every point has its cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest
from chaos.cells import deployed_cells, script_cells, server_cells
from chaos.composition.cells import composition_cells, composition_server_cells, resume_cells
from chaos.docker.cells import OPERATIONS, actor_cells, box_cells, engine_cells
from chaos.memory.cells import change_cells, memory_cells
from chaos.retry_cells import retry_cells
from chaos.sandbox.cells import sandbox_cells, sandbox_harness_cells, sandbox_server_cells
from chaos.sessions.cells import session_cells
from chaos.tracing.cells import tracing_cells
from sandstream_bus.crashpoints import CRASH_POINTS

ROOT = Path(__file__).parents[2]
_CALL = re.compile(r"\bcrashpoint\(([^)]*)\)")
_NAME = re.compile(r'"([a-z]+\.[a-z_]+)"')


def _sources() -> list[Path]:
    return [
        path
        for folder in ("bus/sandstream_bus", "actors/sandstream_actors", "sandstream")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def test_every_call_of_a_crash_point_is_in_the_list() -> None:
    found: set[str] = set()
    for path in _sources():
        for call in _CALL.findall(path.read_text()):
            found.update(_NAME.findall(call))
    # the pull loop makes the names of its points out of the kind of its consumer
    found.update(f"{kind}.{when}_ack" for kind in _LOOPS for when in _WHEN)
    assert found == set(CRASH_POINTS)
    assert len(set(CRASH_POINTS)) == len(CRASH_POINTS)


_LOOPS = ("harness", "carrier", "tools", "sandbox", "tracing", "memory", "sessions")
_WHEN = ("before", "after")


class _Pointed(Protocol):
    """A cell of any matrix."""

    @property
    def point(self) -> str: ...


def _points(*matrices: Sequence[_Pointed]) -> set[str]:
    return {cell.point for matrix in matrices for cell in matrix}


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_every_crash_point_has_a_cell(point: str) -> None:
    points = _points(deployed_cells(), script_cells(), sandbox_cells(), composition_cells())
    points |= _points(resume_cells(), tracing_cells(), memory_cells())
    points |= _points(change_cells(), retry_cells(), session_cells())
    # tests/cli/commands/setup/test_upgrade.py kills a set-up at each of these
    points |= {it for it in CRASH_POINTS if it.startswith("upgrade.")}
    assert point in points


def test_the_server_dies_at_every_point_of_a_run() -> None:
    """Except for callers, parking, sandboxes and readers, which are not part of every run."""
    points = _points(server_cells(), composition_server_cells())
    missing = set(CRASH_POINTS) - points
    assert {point.partition(".")[0] for point in missing} <= {
        "client",
        "expiry",
        "harness",
        "memory",
        "parking",
        "retry",
        "runner",
        "sandbox",
        "sessions",
        "tracing",
        "upgrade",
        "worker",
    }
    assert {point for point in missing if point.startswith("harness")} == {
        "harness.before_refuse",
        "harness.after_refuse",
    }


def test_a_container_is_killed_at_every_point_of_its_life() -> None:
    """The actor at all points of the sandbox actor; a box and an engine wherever there is one."""
    points = {point for point in CRASH_POINTS if point.startswith("sandbox.")}
    actors = {it.point for it in sandbox_cells()} | {it.point for it in actor_cells()}
    assert points <= actors
    harnesses = {cell.point for cell in sandbox_harness_cells()}
    assert {it for it in points - harnesses if "memory" not in it} == {
        "sandbox.after_restore",  # no run restores a sandbox, nor is it replied to
        "sandbox.before_reply",
        "sandbox.after_reply",
        "sandbox.before_pause",  # nor does a run of these pause it
        "sandbox.after_pause",
    }
    for cells in (box_cells(), engine_cells()):
        assert {cell.operation for cell in cells} == set(OPERATIONS)


def test_cells_have_names_of_their_own() -> None:
    cells = [*deployed_cells(), *server_cells(), *script_cells()]
    assert len({cell.name for cell in cells}) == len(cells)
    of_sandboxes = [*sandbox_cells(), *sandbox_server_cells()]
    assert len({cell.name for cell in of_sandboxes}) == len(of_sandboxes)
    of_containers = [*actor_cells(), *box_cells(), *engine_cells()]
    assert len({cell.name for cell in of_containers}) == len(of_containers)
    assert len({cell.name for cell in tracing_cells()}) == len(tracing_cells())
    of_memories = [cell.name for cell in memory_cells()] + [cell.name for cell in change_cells()]
    assert len(set(of_memories)) == len(of_memories)
    composed = [*composition_cells(), *composition_server_cells()]
    assert len({cell.name for cell in composed}) == len(composed)
