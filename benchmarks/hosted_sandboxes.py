"""(v) Sandboxes at Daytona and E2B, both sides at the same local server of the vendor.

The server adds a latency to each request and to each message of a stream, as a network does. Its
journal counts what each side asks of the vendor. Only one event loop is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import Figure, Series
from lab import Lab, Program, repetitions

from sandstream.testing import Script, script_for, text, tool_call

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from vendors.process import VendorServer

LATENCY_S = 0.030
VENDORS = {"daytona": "Daytona", "e2b": "E2B"}
SIDES = ("sandstream", "agents")
TURNS = 10
MANIFEST_FILES = 200
FILES = 2_000
FILE_BYTES = 10_000
_ROOTS: dict[str, dict[str, Any]] = {"daytona": {"extra_dirs": ["/workspace"]}}
"""Boxes of the local Daytona have no sudo, with which a user could make the directory."""


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    steps = [tool_call("exec_command", {"cmd": "true"}).times(TURNS - 1), text("done")]
    base_url = lab.model(Script(default=script_for("", steps)))
    found: list[Figure] = []
    for vendor, label in VENDORS.items():
        home = lab.fast_home()
        boxes = home.with_name(f"{home.name}-vendor")
        with VendorServer.start(vendor, home=boxes, **_ROOTS.get(vendor, {})) as server:
            server.set_latency(LATENCY_S)
            sides = {
                side: lab.start(
                    "hosted_sessions",
                    side,
                    loop=loops[0],
                    base_url=base_url,
                    home=home,
                    settings={"BENCH_VENDOR": vendor, **server.env},
                )
                for side in SIDES
            }
            bench = _Bench(server, sides)
            bench.measure(quick)
            lab.close_programs()
            if errors := server.protocol_errors():
                raise RuntimeError(f"{label} was asked in a wrong way: {errors[:5]}")
        found += bench.figures(label, loops[0])
    return found


class _Bench:
    """Both sides at one server: how long each step takes, and how many calls it makes."""

    def __init__(self, server: VendorServer, sides: dict[str, Program]) -> None:
        self._server = server
        self._sides = sides
        self._took: dict[str, dict[str, list[float]]] = {}
        self._calls: dict[str, dict[str, list[float]]] = {}
        self._seen = 0

    def measure(self, quick: bool) -> None:
        for side in self._sides:
            self._ask(side, do="open", count=1)
            self._ask(side, do="exec", times=3)
            self._ask(side, do="runs", runs=1, turns=TURNS, own=False)
            self._ask(side, do="close")
        for _ in repetitions(2 if quick else 5, within_s=90):
            for side in self._sides:
                self._commands(side, 5 if quick else 20)
        for _ in repetitions(1 if quick else 3, within_s=60):
            for side in self._sides:
                self._manifest(side)
        for number in repetitions(1 if quick else 3, within_s=120):
            for side in self._sides:
                self._snapshots(side, FILE_BYTES + number)

    def figures(self, label: str, loop: str) -> Iterator[Figure]:
        size = f"{FILES * FILE_BYTES // 1_000_000} MB in {FILES} files"
        measures: dict[str, tuple[str, float | None]] = {
            "exec": ("exec('true')", 1),
            "turn": ("a turn of a ten-turn run", 1),
            "first": ("create to the end of the first command", 1),
            "manifest": (f"create with a manifest of {MANIFEST_FILES} files", 1),
            "cold": (f"stop, nothing stored before, {size}", None),
            "again": (f"stop after a change of one file, {size}", 0.5),
            "resume": (f"resume in a new box, {size}", None),
        }
        for name, (measure, wanted) in measures.items():
            for values, unit in ((self._took, "ms"), (self._calls, "calls")):
                yield Figure(
                    benchmark="hosted_sandboxes",
                    measure=f"{label}: {measure}",
                    unit=unit,
                    loop=loop,
                    ours=Series("sandstream", values[name]["sandstream"]),
                    baseline=Series("agents", values[name]["agents"]),
                    wanted_ratio=wanted if unit == "ms" else None,
                )

    def _commands(self, side: str, times: int) -> None:
        opened, calls = self._ask(side, do="open", count=1)
        answer, more = self._ask(side, do="exec", times=1)
        self._note("first", side, [opened["wall_s"] + answer["exec_s"][0]], calls + more)
        answer, calls = self._ask(side, do="exec", times=times)
        self._note("exec", side, answer["exec_s"], calls / times)
        answer, calls = self._ask(side, do="runs", runs=1, turns=TURNS, own=False)
        self._note("turn", side, [answer["wall_s"] / TURNS], calls / TURNS)
        self._ask(side, do="close")

    def _manifest(self, side: str) -> None:
        self._step("manifest", side, do="made", files=MANIFEST_FILES)
        self._ask(side, do="count", files=MANIFEST_FILES)
        self._ask(side, do="close")

    def _snapshots(self, side: str, size: int) -> None:
        self._ask(side, do="open", count=1)
        self._ask(side, do="fill", files=FILES, size=size)
        self._step("cold", side, do="stop")
        self._ask(side, do="change")
        self._step("again", side, do="stop")
        self._ask(side, do="leave")
        self._step("resume", side, do="resume")
        self._ask(side, do="all_there", files=FILES)
        self._ask(side, do="close")

    def _step(self, name: str, side: str, **request: Any) -> None:
        answer, calls = self._ask(side, **request)
        self._note(name, side, [answer["wall_s"]], calls)

    def _note(self, name: str, side: str, seconds: list[float], calls: float) -> None:
        took = self._took.setdefault(name, {}).setdefault(side, [])
        took += [it * 1000 for it in seconds]
        self._calls.setdefault(name, {}).setdefault(side, []).append(calls)

    def _ask(self, side: str, **request: Any) -> tuple[dict[str, Any], int]:
        """The answer, and how many calls the vendor got until then."""
        self._new_calls()
        answer = self._sides[side].ask(**request)
        return answer, self._new_calls()

    def _new_calls(self) -> int:
        calls = len(self._server.journal(since=self._seen))
        self._seen += calls
        return calls
