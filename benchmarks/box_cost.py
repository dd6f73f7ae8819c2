"""What a local box costs, in this tree and in another one, by turns in one run.

python benchmarks/box_cost.py --beside ../another-checkout [--rounds 30]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from lab import Program

HERE = Path(__file__).resolve().parent
TIMES = {"exec": 20, "create": 1}
"""How many of each make a turn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout, measured by turns with this")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    trees = {"here": HERE.parent}
    if arguments.beside:
        trees["beside"] = arguments.beside.resolve()
    took: dict[tuple[str, str], list[float]] = {(it, do): [] for it in trees for do in TIMES}
    cpu: dict[tuple[str, str], float] = dict.fromkeys(took, 0.0)
    with tempfile.TemporaryDirectory(prefix="sandstream-bench-") as folder:
        sides = {name: _program(tree, Path(folder) / name) for name, tree in trees.items()}
        for side in sides.values():
            side.ask(do="exec", times=20)
            side.ask(do="create", times=1)
        for number in range(arguments.rounds):
            order = list(sides) if number % 2 else list(reversed(sides))  # neither always first
            for do, times in TIMES.items():
                for name in order:
                    answer = sides[name].ask(do=do, times=times)
                    took[name, do] += answer["took_s"]
                    cpu[name, do] += answer["cpu_s"]
        for side in sides.values():
            side.ask(do="end")
            side.close()
    print(f"{'':<16}{'n':>6}{'best ms':>10}{'10 % ms':>10}{'median ms':>11}{'own CPU ms':>12}")
    for (name, do), values in sorted(took.items(), key=lambda it: it[0][1]):
        tenth = statistics.quantiles(values, n=10)[0]
        best, low, median = (
            value * 1000 for value in (min(values), tenth, statistics.median(values))
        )
        each = cpu[name, do] / len(values) * 1000
        print(
            f"{do:<8}{name:<8}{len(values):>6}{best:>10.2f}{low:>10.2f}{median:>11.2f}{each:>12.3f}"
        )


def _program(tree: Path, home: Path) -> Program:
    env = {**os.environ, "PYTHONPATH": str(tree / "providers")}
    return Program([sys.executable, str(HERE / "programs" / "boxes.py"), str(home)], env)


if __name__ == "__main__":
    main()
