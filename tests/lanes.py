"""Runs the whole suite in a few processes side by side: most tests wait for servers, not for CPUs.

    python tests/lanes.py                     everything, three groups at a time
    python tests/lanes.py --lanes 1           one after the other
    python tests/lanes.py --junit DIR         one report file per group, for CI
    python tests/lanes.py -- -x --durations=5 what is after -- goes to each pytest

A group is a directory of tests, or a file of the longest ones. The output of a
group is printed when it ends; what failed is named again at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
LONG = ("chaos", "contract", "comparison", "cli", "providers", "sandstream", "docs")
"""They begin first."""
BY_FILE = ("chaos", "comparison")
"""Each of their files is a group."""
NO_TESTS = 5
"""The exit code of pytest when it found none."""


class Outcome(NamedTuple):
    group: str
    code: int
    seconds: float


def groups() -> list[Path]:
    """All tests, each in one group; long ones first."""
    long: list[Path] = []
    for name in LONG:
        files = sorted((ROOT / name).rglob("test_*.py"), key=lambda it: -it.stat().st_size)
        long += files if name in BY_FILE else _folders(files)
    rest = [
        it
        for it in sorted(ROOT.iterdir())
        if it.name not in LONG and (it.is_dir() or it.name.startswith("test_"))
    ]
    return long + [it for it in rest if it.is_file() or any(it.rglob("test_*.py"))]


def _folders(files: list[Path]) -> list[Path]:
    """The directories of the files; one inside another is a group of its own."""
    return list(dict.fromkeys(file.parent for file in files))


def _only_own(group: Path) -> list[str]:
    """What to leave out: directories that are groups themselves."""
    if group.is_file():
        return []
    inner = {it.parent for it in group.rglob("test_*.py")} - {group}
    split = any(group.is_relative_to(ROOT / name) for name in LONG)
    return [f"--ignore={it}" for it in sorted(inner)] if split else []


async def _run(group: Path, junit: Path | None, more: list[str]) -> Outcome:
    name = group.relative_to(ROOT).as_posix()
    command = [sys.executable, "-m", "pytest", "-q", str(group), *_only_own(group), *more]
    if junit is not None:
        command.append(f"--junitxml={junit / (name.replace('/', '.') + '.xml')}")
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    code = 0 if process.returncode == NO_TESTS else process.returncode or 0
    outcome = Outcome(name, code, time.monotonic() - began)
    text = said.decode(errors="replace").rstrip()
    shown = text if code else text.rpartition("\n")[2]
    print(f"{'FAILED' if code else 'ok'}  {name}  ({outcome.seconds:.0f} s)  {shown}", flush=True)
    return outcome


async def _all(lanes: int, junit: Path | None, more: list[str]) -> list[Outcome]:
    free = asyncio.Semaphore(lanes)

    async def one(group: Path) -> Outcome:
        async with free:
            return await _run(group, junit, more)

    return list(await asyncio.gather(*map(one, groups())))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lanes", type=int, default=3)
    parser.add_argument("--junit", type=Path)
    parser.add_argument("more", nargs="*", help="for pytest, after --")
    arguments = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(_all(arguments.lanes, arguments.junit, arguments.more))
    failed = [it.group for it in outcomes if it.code]
    print(f"{len(outcomes)} groups in {time.monotonic() - began:.0f} s", end="; ")
    print(f"FAILED: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
