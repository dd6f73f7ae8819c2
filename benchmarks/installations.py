"""Installations under measurement: a server, its processes, and the resources they use."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import processes
from lab import Lab, Program

LAYOUTS = ("one replica", "two replicas", "in the caller")
LOOP = "uvloop"
"""The event loop of `sandstream actor harness` and `sandstream worker`, if it is installed."""


class Used(NamedTuple):
    """The resources that a request used, and the program's answer."""

    answer: dict[str, Any]
    cpu_s: dict[str, float]
    peak_mb: dict[str, float]
    others: float
    """The share of the machine's cores that processes outside the measurement used."""

    def cpu_ms_per(self, count: int) -> dict[str, float]:
        return total_cpu_ms([self], count)


def total_cpu_ms(several: Sequence[Used], count: int) -> dict[str, float]:
    """The total CPU time by role, per unit of work."""
    return {
        role: sum(used.cpu_s[role] for used in several) * 1000 / count for role in several[0].cpu_s
    }


class Access(NamedTuple):
    """How to reach the private server of an installation without Sandstream."""

    url: str
    user: str
    password: str


@dataclass
class Installation:
    """One server and its processes by role. ``caller`` carries out requests."""

    layout: str
    home: Path
    environment: dict[str, str]
    caller: Program
    roles: dict[str, list[int]]
    pool: str | None = None
    """The harness pool for the caller's runs; ``None``: the caller takes the turns itself."""
    models: list[int] = field(default_factory=list)
    """The scripted model servers: part of the measurement, but of no role."""

    def ask(self, **request: Any) -> Used:
        """Let the caller do something; return what each role used meanwhile."""
        for pids in self.roles.values():
            processes.reset_peak(pids)
        before = {role: processes.cpu_s(pids) for role, pids in self.roles.items()}
        foreign_s, began = self._foreign_s(), time.monotonic()
        answer = self.caller.ask(**request)
        cores_s = (time.monotonic() - began) * (os.cpu_count() or 1)
        return Used(
            answer,
            {role: processes.cpu_s(pids) - before[role] for role, pids in self.roles.items()},
            {role: processes.peak_mb(pids) for role, pids in self.roles.items()},
            max(0.0, self._foreign_s() - foreign_s) / cores_s,
        )

    def _foreign_s(self) -> float:
        ours = [*self.models, *(pid for pids in self.roles.values() for pid in pids)]
        return processes.machine_busy_s() - processes.cpu_s(ours)

    def access(self) -> Access:
        record = json.loads((self.home / "server.json").read_bytes())
        return Access(record["url"], record["user"], record["password"])


def deployed(lab: Lab, base_url: str, replicas: int) -> Installation:
    """A deployed agent: a worker, harness replicas and a client, each in its own process."""
    home = lab.home()
    common: dict[str, Any] = {"base_url": base_url, "home": home, "loop": LOOP}
    worker = lab.start("worker", "sandstream", **common)
    worker.wait_ready()  # it starts the server
    harnesses = [lab.start("harness", "sandstream", **common) for _ in range(replicas)]
    caller = lab.start("submitter", "sandstream", **common)
    for program in (*harnesses, caller):
        program.wait_ready()
    roles = {
        "nats-server": lab.server_pids(home),
        "harness": [harness.pid for harness in harnesses],
        "worker": [worker.pid],
        "caller": [caller.pid],
    }
    layout = {1: "one replica", 2: "two replicas"}[replicas]
    environment = lab.environment(base_url, home)
    return Installation(layout, home, environment, caller, roles, models=lab.model_pids)


def beside(lab: Lab, base_url: str, program: str) -> Installation:
    """A program that uses ``Runner.run``, and a harness in its own process."""
    home = lab.home()
    common: dict[str, Any] = {"base_url": base_url, "home": home, "loop": LOOP}
    harness = lab.start("harness", "sandstream", **common)
    harness.wait_ready()
    caller = lab.start(program, "sandstream", **common)
    caller.wait_ready()
    roles = {
        "nats-server": lab.server_pids(home),
        "harness": [harness.pid],
        "caller": [caller.pid],
    }
    environment = lab.environment(base_url, home)
    return Installation(
        "harness beside", home, environment, caller, roles, pool="main", models=lab.model_pids
    )


def alone(lab: Lab, base_url: str, program: str, **first: Any) -> Installation:
    """Everything except the server in the caller's process. ``first``: a request that starts it."""
    home = lab.home()
    caller = lab.start(program, "sandstream", base_url=base_url, home=home, loop=LOOP)
    caller.ask(**first)
    roles = {"nats-server": lab.server_pids(home), "caller": [caller.pid]}
    environment = lab.environment(base_url, home)
    return Installation("in the caller", home, environment, caller, roles, models=lab.model_pids)
