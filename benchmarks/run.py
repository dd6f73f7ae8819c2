"""All benchmarks, one command: `python benchmarks/run.py` (from the repository's environment)."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import approval_resume
import cold_start
import concurrent_runs
import docker_sandboxes
import fan_out
import first_token
import handoff_chain
import hop_cost
import hosted_sandboxes
import memory_consolidation
import memory_recall
import parked_approvals
import parked_runs
import peer
import replicas
import sandbox_exec
import sandbox_manifest
import sandbox_memory
import sandbox_snapshots
import sandbox_turns
import session_runs
import trace_views
import tracing_cost
import turn_overhead
from durable_sessions import sleeping_sessions, temporal_sessions, tui_latency
from figures import Figure, table
from lab import Lab
from machine import describe

Measure = Callable[..., list[Figure]]
BENCHMARKS: dict[str, Measure] = {
    "turn_overhead": turn_overhead.measure,
    "concurrent_runs": concurrent_runs.measure,
    "first_token": first_token.measure,
    "parked_runs": parked_runs.measure,
    "parked_approvals": parked_approvals.measure,
    "cold_start": cold_start.measure,
    "hop_cost": hop_cost.measure,
    "fan_out": fan_out.measure,
    "handoff_chain": handoff_chain.measure,
    "approval_resume": approval_resume.measure,
    "session_runs": session_runs.measure,
    "replicas": replicas.measure,
    "tracing_cost": tracing_cost.measure,
    "trace_views": trace_views.measure,
    "sandbox_exec": sandbox_exec.measure,
    "sandbox_turns": sandbox_turns.measure,
    "sandbox_manifest": sandbox_manifest.measure,
    "sandbox_snapshots": sandbox_snapshots.measure,
    "sandbox_memory": sandbox_memory.measure,
    "docker_sandboxes": docker_sandboxes.measure,
    "hosted_sandboxes": hosted_sandboxes.measure,
    "memory_consolidation": memory_consolidation.measure,
    "memory_recall": memory_recall.measure,
    "sleeping_sessions": sleeping_sessions.measure,
    "temporal_sessions": temporal_sessions.measure,
    "tui_latency": tui_latency.measure,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/run.py", description=__doc__)
    parser.add_argument("--only", help=f"some of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", type=Path, help="write every value here")
    parser.add_argument("--quick", action="store_true", help="few repetitions, one event loop")
    loops = parser.add_mutually_exclusive_group()
    loops.add_argument("--uvloop", action="store_true", help="only uvloop, on both sides")
    loops.add_argument("--asyncio", action="store_true", help="only asyncio, on both sides")
    options = parser.parse_args(argv)
    names = options.only.split(",") if options.only else list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the lab cleans up
    peer.python()
    figures: list[Figure] = []
    for name in names:
        began = time.monotonic()
        with Lab() as lab:
            found = BENCHMARKS[name](lab, quick=options.quick, loops=_loops(options))
        figures.extend(found)
        seconds = time.monotonic() - began
        print(f"{name}: {seconds:.0f} s", file=sys.stderr)
    print(table(figures))
    if options.json is not None:
        report = {
            "machine": describe() | {"baseline": f"openai-agents {peer.VERSION}"},
            "figures": [figure.to_dict() for figure in figures],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _loops(options: argparse.Namespace) -> list[str]:
    """Both sides always get the same loop."""
    if options.uvloop:
        return ["uvloop"]
    return ["asyncio"] if options.asyncio or options.quick else ["asyncio", "uvloop"]


if __name__ == "__main__":
    sys.exit(main())
