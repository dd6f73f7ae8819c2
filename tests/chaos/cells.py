"""The matrix: which process dies, where, and in which kind of run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chaos.scenarios import LARGE, LIMITED, PATIENT, PLAIN, SHORT, Scenario
from sandstream_bus.crashpoints import CRASH_POINTS

Where = Literal[
    "harness", "worker", "script", "submitter", "canceller", "expirer", "parker", "ender"
]
"""``parker``: a harness that gets an unreadable task; ``ender``: an unreadable message in a run;
``expirer``: ends runs that are too old for the log.
"""


@dataclass(frozen=True)
class Cell:
    """Kill when ``point`` is passed for the ``count``-th time in a process of kind ``where``:
    either that process itself, or the server.
    """

    where: Where
    point: str
    count: int = 1
    victim: Literal["self", "server"] = "self"
    scenario: Scenario = PLAIN
    earlier: tuple[str, ...] = ()
    """The points where earlier starts of the script were killed."""

    @property
    def name(self) -> str:
        dead = "" if self.victim == "self" else f"{self.victim}-"
        return f"{dead}{self.where}-{self.point}-{self.count}-{self.scenario.name}"

    @property
    def slug(self) -> str:
        return self.name.replace(".", "_").removesuffix(f"-{self.scenario.name}")


_HARNESS = (
    "received",
    "before_start",
    "after_start",
    "before_model",
    "before_commit",
    "after_commit",
    "before_dispatch",
    "after_dispatch",
    "before_done",
    "after_done",
    "before_ack",
    "after_ack",
)
_TOOLS = (
    "received",
    "before_claim",
    "started",
    "before_invoke",
    "after_invoke",
    "published",
    "before_ack",
    "after_ack",
)
_TIMERS = (
    *("harness.before_timer", "harness.after_timer"),
    *(f"carrier.{point}" for point in ("received", "carried", "before_ack", "after_ack")),
)
_OBJECTS = ("objects.before_chunks", "objects.before_meta", "objects.after_meta")
_INDEX = tuple(
    f"index.{when}_{what}" for what in ("enter", "leave") for when in ("before", "after")
)
_PUBLISH = ("bus.before_publish", "bus.after_publish")


def deployed_cells() -> list[Cell]:
    """Two replicas of each actor; one of them, or the server, dies."""
    cells = [Cell("harness", f"harness.{point}") for point in _HARNESS]
    cells += [Cell("worker", f"tools.{point}") for point in _TOOLS]
    cells += [Cell("worker", "tools.after_invoke", 4), Cell("harness", "harness.received", 7)]
    cells += [Cell("harness", point, scenario=LIMITED) for point in _TIMERS]
    cells += [Cell("worker", point, scenario=LARGE) for point in _OBJECTS]
    cells += [Cell("worker", f"worker.{when}_register") for when in ("before", "after")]
    cells += [Cell("harness", point, count) for point in _PUBLISH for count in (3, 6)]
    cells += [Cell("submitter", f"client.{when}_submit") for when in ("before", "after")]
    cells += [
        Cell("canceller", f"client.{when}_cancel", scenario=PATIENT) for when in ("before", "after")
    ]
    cells += [
        Cell("expirer", f"expiry.{when}_end", scenario=PATIENT) for when in ("before", "after")
    ]
    cells += [Cell("harness", point) for point in _INDEX]
    cells += [Cell("parker", f"parking.{when}_park") for when in ("before", "after")]
    cells += [Cell("parker", f"harness.{when}_refuse") for when in ("before", "after")]
    cells += [
        Cell("ender", f"parking.{when}_end", scenario=LIMITED) for when in ("before", "after")
    ]
    return cells


def server_cells() -> list[Cell]:
    """The server dies exactly when an actor is about to publish or has just published."""
    points = [Cell("harness", f"harness.{point}", victim="server") for point in _HARNESS]
    points += [Cell("worker", f"tools.{point}", victim="server") for point in _TOOLS]
    points += [Cell("harness", point, victim="server") for point in _INDEX]
    points += [Cell("harness", point, 1, "server", LIMITED) for point in _TIMERS]
    points += [Cell("worker", point, 1, "server", LARGE) for point in _OBJECTS]
    points += [
        Cell(where, point, count, "server")
        for where in ("harness", "worker")
        for point in _PUBLISH
        for count in (2, 5)
    ]
    return points


PUBLISHES_OF_SHORT = 17
"""How many messages the script publishes in one short run, from its start to its end."""


def script_cells() -> list[Cell]:
    """A script with everything in one process is killed before and after each of its publishes."""
    cells = [
        Cell("script", point, count, scenario=SHORT)
        for point in _PUBLISH
        for count in range(1, PUBLISHES_OF_SHORT + 1)
    ]
    cells += [Cell("script", f"runner.{when}_start") for when in ("before", "after")]
    cells += [Cell("script", "tools.after_invoke", 3), Cell("script", "tools.started", 2)]
    cells += [Cell("script", "harness.before_commit", 2)]
    cells += [Cell("script", point, scenario=LIMITED) for point in _TIMERS]
    cells += [  # a second start, which takes the run over, is killed too
        Cell("script", point, scenario=SHORT, earlier=("harness.before_commit:1",))
        for point in CRASH_POINTS
        if point.startswith("runner.") and point.endswith("_move")
    ]
    return cells
