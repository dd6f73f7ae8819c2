"""(f) A durable hop through our bus against the bare JetStream round trip of nats-py."""

from __future__ import annotations

import statistics

from figures import Figure, Series
from lab import Lab, repetitions


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    count, hops = (3, 100) if quick else (7, 200)
    figures: list[Figure] = []
    for loop in loops:
        program = lab.start("hop", "sandstream", loop=loop, home=lab.home())
        took: dict[str, list[float]] = {"ours": [], "bare": [], "bare_waiting": []}
        for kind in took:
            program.ask(do=kind, hops=50)
        for _ in repetitions(count, within_s=10):
            for kind, values in took.items():
                seconds = program.ask(do=kind, hops=hops)["hop_s"]
                values.append(statistics.median(seconds) * 1e6)
        lab.close_programs()
        for kind, name in (("bare", "publish + fetch"), ("bare_waiting", "fetch waiting")):
            figures.append(
                Figure(
                    benchmark="hop_cost",
                    measure="durable hop",
                    unit="µs",
                    loop=loop,
                    ours=Series("send -> handler", took["ours"]),
                    baseline=Series(f"nats-py {name}", took[kind]),
                    wanted_ratio=1.0 if kind == "bare" else None,
                )
            )
    return figures
