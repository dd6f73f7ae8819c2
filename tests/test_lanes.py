"""The whole suite: its totals at the end, and the order of its groups."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

LANES = Path(__file__).parent / "lanes.py"
RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop(1))
import lanes
lanes.ROOT = Path(sys.argv.pop(1))
lanes.DURATIONS = lanes.ROOT / "durations.json"
sys.exit(lanes.main())
"""
ORDER = RUN.replace("sys.exit(lanes.main())", "print(*(it.name for it in lanes.groups()))")
GOOD = "def test_one(): pass\ndef test_two(): pass\n"
MIXED = (
    "import pytest\n"
    "def test_good(): pass\n"
    "def test_bad(): assert False\n"
    "@pytest.mark.skip\n"
    "def test_not_here(): pass\n"
    "@pytest.fixture\n"
    "def broken(): raise RuntimeError\n"
    "def test_no_fixture(broken): pass\n"
)
LEAVING = """
import subprocess
def test_starts(tmp_path):
    subprocess.Popen(["sleep", "5"], cwd=tmp_path, start_new_session=True)
"""


def run(code: str, tests: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the last line."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(LANES.parent), str(tests), *arguments],
        capture_output=True,
        text=True,
        cwd=tests,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()[-1]


def last_line(tests: Path) -> tuple[int, str]:
    code, line = run(RUN, tests, "--", "-p", "no:cacheprovider")
    return code, re.sub(r"\d+ s;", "N s;", line)


def test_totals_of_all_groups(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    tests = tmp_path / "tests"
    (tests / "inner").mkdir(parents=True)
    (tests / "test_a.py").write_text(GOOD)
    (tests / "inner" / "test_b.py").write_text(GOOD)
    assert last_line(tests) == (
        0,
        "total: 4 passed, 0 failed, 0 skipped; groups: 2; time: N s; all passed",
    )
    (tests / "test_c.py").write_text(MIXED)
    (tests / "test_d.py").write_text("import os\ndef test_dies(): os._exit(9)\n")
    assert last_line(tests) == (
        1,
        "total: 5 passed, 2 failed, 1 skipped; groups: 4; time: N s; "
        "ended without a result: test_d.py; FAILED: test_c.py, test_d.py",
    )


def test_what_a_group_leaves_behind_is_found_although_it_ends_soon_afterwards(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_a.py").write_text(LEAVING)
    (tmp_path / "test_b.py").write_text("import time\ndef test_it(): time.sleep(9)\n")
    patient = RUN.replace("sys.exit", "lanes.LEFT_S = 1.0\nsys.exit")
    code, line = run(patient, tmp_path)
    assert (code, line.rpartition("; ")[2]) == (1, "1 left behind")


def test_the_longest_group_of_the_last_run_begins_first(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(GOOD * 2)
    (tmp_path / "test_b.py").write_text(GOOD + "# timeout(300)\n")
    (tmp_path / "test_c.py").write_text("import time\ndef test_it(): time.sleep(2)\n")
    assert run(ORDER, tmp_path) == (0, "test_b.py test_a.py test_c.py")  # by estimate
    assert run(RUN, tmp_path)[0] == 0
    measured = json.loads((tmp_path / "durations.json").read_text())
    assert measured.keys() == {"test_a.py", "test_b.py", "test_c.py"}
    assert measured["test_c.py"] >= 2
    (tmp_path / "durations.json").write_text('{"test_a.py": 2, "test_b.py": 1, "test_c.py": 3}')
    assert run(ORDER, tmp_path) == (0, "test_c.py test_a.py test_b.py")
    (tmp_path / "durations.json").write_text('{"test_a.py": 9e5, "test_b.py": 8, "test_c.py": 7}')
    (tmp_path / "test_c.py").write_text("def test_it(): assert False\n")
    assert run(RUN, tmp_path)[0] == 1
    measured = json.loads((tmp_path / "durations.json").read_text())
    assert measured["test_a.py"] < 9e5 and measured["test_c.py"] == 7
