"""Runs the quick tests in a few processes, each with its own part of the files.

    python tests/quick.py                     all of them
    python tests/quick.py -- -k name          what is after -- goes to each pytest

A process imports and collects only the files of its part, which lie side by side and so import the
same modules. The parts take about the same time if the durations of the last run are known. The
output of a part is printed when it ends; the last line has the totals.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from lanes import ROOT, Outcome, add_durations, read_durations, run_pytest, total

PROCESSES = 4
"""For two cores, as some tests wait for time limits."""
DURATIONS = ROOT / "output" / "quick-durations.json"
"""The seconds that the quick tests of each file took the last time. Git ignores the file."""
_COLLECT_S = 0.02
"""To import a file and to find its tests."""


def parts(root: Path, count: int, durations: dict[str, float]) -> list[list[Path]]:
    """All files of tests, in parts that take about the same time.

    Each part is a piece of one list in which files of a folder are neighbours, because they import
    the same modules. The files at the top come first: they read all sources of the product, which
    are then parsed once.
    """
    files = sorted(root.rglob("test_*.py"), key=lambda it: (it.parent != root, it))
    seconds = [_COLLECT_S + durations.get(_name(it, root), _estimate(it)) for it in files]
    middles = [sum(seconds[:n]) + it / 2 for n, it in enumerate(seconds)]
    found: list[list[Path]] = [[] for _ in range(count)]
    for file, middle in zip(files, middles, strict=True):
        found[int(count * middle / sum(seconds))].append(file)
    return [it for it in found if it]


def _estimate(file: Path) -> float:
    """Seconds for a file that was never measured."""
    return file.stat().st_size / 50_000


def _name(file: Path, root: Path) -> str:
    """As pytest calls it in its reports."""
    return ".".join(file.relative_to(root.parent).with_suffix("").parts)


async def _all(reports: Path, more: list[str]) -> list[Outcome]:
    async def one(number: int, files: list[Path]) -> Outcome:
        report = f"--junitxml={reports / f'{number}.xml'}"
        arguments = ["-m", "quick", report, *map(str, files), *more]
        return await run_pytest(f"part {number}", arguments)

    divided = parts(ROOT, PROCESSES, read_durations(DURATIONS))
    return await asyncio.gather(*(one(*it) for it in enumerate(divided, 1)))


def _reported(reports: Path) -> dict[str, float]:
    """The seconds of each file; 0 for one without quick tests."""
    seconds = {_name(it, ROOT): 0.0 for it in ROOT.rglob("test_*.py")}
    for file in reports.iterdir():
        for case in ElementTree.parse(file).iter("testcase"):
            seconds[case.attrib["classname"]] += float(case.attrib["time"])
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("more", nargs="*", help="for pytest, after --")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as reports:
        outcomes = asyncio.run(_all(Path(reports), arguments.more))
        has_failed = any(it.code for it in outcomes)
        if not arguments.more and not has_failed:
            add_durations(DURATIONS, _reported(Path(reports)))
    print(total(outcomes, time.monotonic() - began))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
