"""Storm after storm: ``PYTHONPATH=tests python -m chaos.soak --minutes 10``. Exit code 1 if any run
failed; its directory is then kept. ``--sandboxes``: the runs work in sandboxes; ``--composition``:
agents work together.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from chaos import report
from chaos.composition.scenarios import scripted_company
from chaos.composition.storm import composition_storm
from chaos.evidence import Outcome
from chaos.matrix import scripted_model
from chaos.sandbox.storm import sandbox_storm
from chaos.storm import storm

Kind = Literal["runs", "sandboxes", "composition"]


async def soak(
    kind: Kind, minutes: float, runs: int, seconds: float, seed: int | None
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    ends = time.monotonic() + minutes * 60
    while time.monotonic() < ends:
        directory = Path(tempfile.mkdtemp(prefix="sandstream-soak-"))
        name, fleet = f"soak{len(outcomes)}", directory / "fleet"
        if kind == "sandboxes":
            outcome = await sandbox_storm(name, fleet, runs=runs, seconds=seconds, seed=seed)
        elif kind == "composition":
            with scripted_company() as model:
                outcome = await composition_storm(
                    name, fleet, model, runs=runs, seconds=seconds, seed=seed
                )
        else:
            with scripted_model() as model:
                outcome = await storm(name, fleet, model, runs=runs, seconds=seconds, seed=seed)
        outcomes.append(outcome)
        report.write("soak", outcomes)
        print(report.lines({"": report.read()["soak"][-1:]})[1], flush=True)
        if outcome.problems:
            print(f"  kept: {directory}", *outcome.problems, sep="\n  ", flush=True)
        else:
            shutil.rmtree(directory)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description="Random kills for a long time.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=60, help="per storm")
    parser.add_argument("--seconds", type=float, default=20.0, help="per storm")
    parser.add_argument("--seed", type=int, help="of every storm; without it each has its own")
    kinds = parser.add_mutually_exclusive_group()
    for kind, help in (
        ("sandboxes", "the runs work in sandboxes"),
        ("composition", "trees of runs, handoffs, approvals and conversations"),
    ):
        kinds.add_argument(
            f"--{kind}", action="store_const", dest="kind", const=kind, default="runs", help=help
        )
    options = parser.parse_args()
    outcomes = asyncio.run(
        soak(options.kind, options.minutes, options.runs, options.seconds, options.seed)
    )
    kills = sum(outcome.kills for outcome in outcomes)
    runs = sum(outcome.runs for outcome in outcomes)
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    print(f"{runs} runs, {kills} kills, {failed} of {len(outcomes)} storms with problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
