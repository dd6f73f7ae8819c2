"""Runs the whole suite in a few processes side by side: most tests wait for servers, not for CPUs.

    python tests/lanes.py                     everything, four groups at a time
    python tests/lanes.py --lanes 1           one after the other
    python tests/lanes.py --junit DIR         one report file per group, for CI
    python tests/lanes.py -- -x --durations=5 what is after -- goes to each pytest

A group is a directory of tests, or a file of the longest ones. The output of a
group is printed when it ends; the last line has the totals, and names again what failed.

All groups have one temporary directory of their own, and share one Docker engine. What the tests
leave behind in the directory, running, or in the engine fails the run and is listed. Each group is
checked when it has ended, because some leftovers end by themselves within minutes, and all of them
once more at the end. The directory is kept if something failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from support.engines import engine
from support.processes import leftovers

ROOT = Path(__file__).resolve().parent
SPLIT = ("chaos", "comparison", "contract", "faults", "network", "security")
"""Each of their files is a group."""
NESTED = ("docs", "providers", "sandstream")
"""Each directory in them is a group of its own."""
SEPARATE = (
    "chaos/docker/test_*.py",
    "chaos/hosted/test_hosted_lives.py",
    "chaos/hosted/test_hosted_matrix.py",
)
"""Hundreds of boxes whose actors are killed need a machine for themselves: `make docker-chaos`,
`make hosted-chaos`.
"""
ENGINE = ("contract/", "comparison/test_same_docker", "providers/docker", "sandstream/sandbox")
"""What starts many containers. One lane is theirs: side by side they would starve each other."""
DURATIONS = ROOT / "output" / "durations.json"
"""The seconds that each group took when it last passed. Git ignores the file."""
_DECLARED_LIMIT = re.compile(r"timeout\((\d+)")
"""The time limits of long tests."""
OUR_FILES = ("sandstream", "contract-", "chromium-")
"""How the names begin of what we and our tests make in a temporary directory."""
LEFT_S = 30.0
"""What the tests began to end may take so long."""
_OWN = "group-"
"""How the directories begin that groups have for their tests."""
NO_TESTS = 5
"""The exit code of pytest when it found none."""


_COUNTED = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")
"""What pytest says in its last line."""


class Outcome(NamedTuple):
    group: str
    code: int
    seconds: float
    counts: Counter[str]
    """How many tests passed, failed or were skipped; empty if pytest did not get so far."""
    left: tuple[str, ...] = ()
    """What the group left behind in the directory of its tests."""


def groups() -> list[Path]:
    """All tests, each in one group; the longest begin first, so that none is left at the end."""
    found: list[Path] = []
    for top in sorted(ROOT.iterdir()):
        files = [top] if top.name.startswith("test_") else sorted(top.rglob("test_*.py"))
        if top.name in SPLIT:
            found += files
        elif top.name in NESTED:
            found += dict.fromkeys(file.parent for file in files)
        elif files:
            found.append(top)
    separate = {file for it in SEPARATE for file in ROOT.glob(it)}
    found = [it for it in found if it not in separate]
    measured = read_durations(DURATIONS)
    return sorted(found, key=lambda it: measured.get(_name(it), _estimate(it)), reverse=True)


def _name(group: Path) -> str:
    return group.relative_to(ROOT).as_posix()


def read_durations(file: Path) -> dict[str, float]:
    """The seconds that each group, or file, took the last time."""
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError):
        return {}


def add_durations(file: Path, seconds: dict[str, float]) -> None:
    """Keep durations for the next run."""
    measured = read_durations(file) | {name: round(it, 2) for name, it in seconds.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(measured, indent=1, sort_keys=True))


def _estimate(group: Path) -> float:
    """Seconds for a group that was never measured: long tests have limits of their own, and the
    others take a second for each 2000 characters.
    """
    ignored = {it.removeprefix("--ignore=") for it in _only_own(group)}
    files = [group] if group.is_file() else group.rglob("test_*.py")
    texts = [it.read_text() for it in files if str(it.parent) not in ignored]
    limits = [int(it) for text in texts for it in _DECLARED_LIMIT.findall(text)]
    return sum(limits) / 4 + sum(map(len, texts)) / 2000


def _only_own(group: Path) -> list[str]:
    """What to leave out: directories that are groups themselves."""
    if group.is_file() or group.relative_to(ROOT).parts[0] not in NESTED:
        return []
    inner = {it.parent for it in group.rglob("test_*.py")} - {group}
    return [f"--ignore={it}" for it in sorted(inner)]


async def _run(
    group: Path, number: int, root: Path, junit: Path | None, more: list[str]
) -> Outcome:
    name = _name(group)
    arguments = [str(group), *_only_own(group), *more]
    # One for each group: pytest closes the directory that its processes share to other users, and
    # some tests open it to them.
    arguments.append(f"--basetemp={root / f'{_OWN}{number}'}")
    if junit is not None:
        arguments.append(f"--junitxml={junit / (name.replace('/', '.') + '.xml')}")
    return await run_pytest(name, arguments, TMPDIR=str(root))


async def run_pytest(name: str, arguments: list[str], **variables: str) -> Outcome:
    """Run a group, and print one line about it, or all that pytest said if a test failed.

    Args:
        name: The name of the group.
        arguments: The arguments of pytest: files, directories, options.
        variables: More environment variables.
    """
    began = time.monotonic()
    # what one group has compiled the others need not
    env = {key: it for key, it in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", *arguments),
        cwd=ROOT.parent,
        env=env | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    code = 0 if process.returncode == NO_TESTS else process.returncode or 0
    text = said.decode(errors="replace").rstrip()
    last = text.rpartition("\n")[2]
    outcome = Outcome(name, code, time.monotonic() - began, _counts(last))
    shown = text if code else last
    print(f"{'FAILED' if code else 'ok'}  {name}  ({outcome.seconds:.0f} s)  {shown}", flush=True)
    return outcome


def _uses_engine(group: Path) -> bool:
    return _name(group).startswith(ENGINE)


async def _all(lanes: int, root: Path, junit: Path | None, more: list[str]) -> list[Outcome]:
    of_engine = asyncio.Semaphore(1)
    free = asyncio.Semaphore(lanes - 1) if lanes > 1 else of_engine

    async def one(number: int, group: Path) -> Outcome:
        async with of_engine if _uses_engine(group) else free:
            outcome = await _run(group, number, root, junit, more)
        own = root / f"{_OWN}{number}"
        left = await asyncio.to_thread(leftovers.wait_until_none, own, within_s=LEFT_S, files=False)
        return outcome._replace(left=tuple(f"{it} (by {outcome.group})" for it in left))

    return list(await asyncio.gather(*(one(*it) for it in enumerate(groups()))))


def _counts(line: str) -> Counter[str]:
    """Errors outside of tests, in fixtures and imports, are failures."""
    counts: Counter[str] = Counter()
    for number, what in _COUNTED.findall(line):
        counts["failed" if what.startswith("error") else what] += int(number)
    return counts


def total(outcomes: list[Outcome], seconds: float) -> str:
    """One line about all groups."""
    counts = sum((it.counts for it in outcomes), Counter[str]())
    rare = "".join(f", {counts[it]} {it}" for it in ("xfailed", "xpassed") if counts[it])
    failed = [it.group for it in outcomes if it.code]
    silent = [it.group for it in outcomes if it.code and not it.counts]
    text = (
        f"total: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
        f"{rare}; groups: {len(outcomes)}; time: {seconds:.0f} s"
    )
    if silent:
        text += f"; ended without a result: {', '.join(silent)}"
    return f"{text}; FAILED: {', '.join(failed)}" if failed else f"{text}; all passed"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--junit", type=Path)
    parser.add_argument("more", nargs="*", help="for pytest, after --")
    arguments = parser.parse_args()
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="sst-"))  # short: sockets lie below it
    root.chmod(0o755)  # boxes of root's tests are other users
    engine.hold()  # the groups share it, if one of them starts it
    try:
        outcomes = asyncio.run(_all(arguments.lanes, root, arguments.junit, arguments.more))
    finally:
        containers = engine.release()
    if not arguments.more:  # arguments for pytest may choose among the tests
        # a group that failed may have ended early
        add_durations(DURATIONS, {it.group: it.seconds for it in outcomes if not it.code})
    named = [line for it in outcomes for line in it.left]
    at_end = [it for it in _left(root) if not any(line.startswith(it) for line in named)]
    left = [*containers, *named, *at_end]
    for line in left:
        print(f"left behind: {line}")
    has_failed = bool(left) or any(it.code for it in outcomes)
    if has_failed:
        print(f"the files of the tests are in {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)
    more = f"; {len(left)} left behind" if left else ""
    print(total(outcomes, time.monotonic() - began) + more)
    return 1 if has_failed else 0


def _left(root: Path) -> list[str]:
    """What is left of all tests. What pytest and the SDK that we compare with keep is not ours."""
    left = leftovers.wait_until_none(root, within_s=LEFT_S, files=False)
    return [*left, *(f"file {it}" for it in root.iterdir() if it.name.startswith(OUR_FILES))]


if __name__ == "__main__":
    sys.exit(main())
