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
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
SPLIT = ("chaos", "comparison")
"""Each of their files is a group."""
NESTED = ("cli", "contract", "docs", "providers", "sandstream")
"""Each directory in them is a group of its own."""
FIRST = (
    "cli",
    "sandstream",
    "contract",
    "docs",
    "chaos/test_matrix.py",
    "actors",
    "comparison/test_same_program.py",
    "chaos/test_composition_matrix.py",
    "bus",
    "comparison/test_same_composition.py",
    "examples",
    "chaos/test_sandbox_matrix.py",
    "sandstream/mcp",
    "chaos/test_storm.py",
    "chaos/test_sandbox_kills.py",
    "comparison/test_portable_examples.py",
)
"""The longest, in the order in which they begin: no lane is left with a long one at the end."""
NO_TESTS = 5
"""The exit code of pytest when it found none."""


class Outcome(NamedTuple):
    group: str
    code: int
    seconds: float


def groups() -> list[Path]:
    """All tests, each in one group; long ones first."""
    found: list[Path] = []
    for top in sorted(ROOT.iterdir()):
        files = [top] if top.name.startswith("test_") else sorted(top.rglob("test_*.py"))
        if top.name in SPLIT:
            found += files
        elif top.name in NESTED:
            found += dict.fromkeys(file.parent for file in files)
        elif files:
            found.append(top)
    return sorted(found, key=_turn)


def _turn(group: Path) -> int:
    name = group.relative_to(ROOT).as_posix()
    return FIRST.index(name) if name in FIRST else len(FIRST)


def _only_own(group: Path) -> list[str]:
    """What to leave out: directories that are groups themselves."""
    if group.is_file() or group.relative_to(ROOT).parts[0] not in NESTED:
        return []
    inner = {it.parent for it in group.rglob("test_*.py")} - {group}
    return [f"--ignore={it}" for it in sorted(inner)]


async def _run(group: Path, junit: Path | None, more: list[str]) -> Outcome:
    name = group.relative_to(ROOT).as_posix()
    command = [sys.executable, "-m", "pytest", "-q", str(group), *_only_own(group), *more]
    if junit is not None:
        command.append(f"--junitxml={junit / (name.replace('/', '.') + '.xml')}")
    began = time.monotonic()
    # what one group has compiled the others need not
    env = {name: it for name, it in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT.parent,
        env=env,
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
