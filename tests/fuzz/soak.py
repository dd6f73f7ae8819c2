"""``PYTHONPATH=tests python -m fuzz.soak``: 100,000 acknowledged messages, then the judgement. Exit
code 1 if a claim does not hold; the directory with all logs is then kept.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from fuzz.fuzzing import Report, fuzz

MAX_RATIO = 5.0
MAX_GROWTH_MB = 4.0
"""Per 10,000 messages, of each actor. The server keeps what it stores, and grows with it."""


def judge(report: Report) -> list[str]:
    """What holds only if there is time to measure it."""
    problems = list(report.problems)
    if report.ratio > MAX_RATIO:
        problems.append(f"a plain run took {report.ratio:.1f} times as long as a quiet one")
    for name, growth in report.growth_mb().items():
        if name != "server" and growth > MAX_GROWTH_MB:
            problems.append(f"{name} grew by {growth:.1f} MB per 10,000 messages")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=30.0, help="at most")
    parser.add_argument("--per-second", type=float, default=400.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="sandstream-fuzz-"))
    report = asyncio.run(
        fuzz(
            directory / "fleet",
            seed=options.seed,
            messages=options.messages,
            within_s=options.minutes * 60,
            per_second=options.per_second,
        )
    )
    print(*report.lines(), sep="\n", flush=True)
    problems = judge(report)
    if problems:
        print(f"kept: {directory}")
        print(f"FAILED: {len(problems)} problems", flush=True)
        return 1
    shutil.rmtree(directory)
    print("all claims hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
