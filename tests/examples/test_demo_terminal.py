"""The demo on real terminals: every line fits, and no line is written over another."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from examples.terminal import InTerminal, Terminal
from examples.test_examples import EXAMPLES, FOREIGN

COLUMNS = (60, 80, 100, 200)
EVENT = re.compile(r"^ +\d+\.\d\ds  (?:sandstream\.)?((?:task|run|live)\.\S+) ")
TIME = re.compile(r"\d\.\d\ds  ")
WALK = {
    "run.walk.start.main": 1,
    "run.walk.model": 2,
    "run.walk.call.demo_app": 2,
    "run.walk.result.main": 2,
    "run.walk.done": 1,
}
BOOK = {
    "run.book.start.main": 1,
    "run.book.model": 2,
    "run.book.call.demo_app": 1,
    "run.book.result.main": 1,
    "run.book.done": 1,
}
CLIMB = {"run.climb.start.main": 1, "run.climb.model": 2, "run.climb.done": 1}


def _environ(directory: Path) -> dict[str, str]:
    left_out = (*FOREIGN, "COLUMNS", "LINES", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"TMPDIR": str(directory), "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Terminal]:
    """The demo on a terminal of each width, all at once: it mostly waits."""
    begun = [
        InTerminal(
            [sys.executable, str(EXAMPLES / "demo.py")],
            _environ(tmp_path_factory.mktemp(f"demo-{columns}")),
            columns,
        )
        for columns in COLUMNS
    ]
    ended = [demo.to_the_end() for demo in begun]
    for code, screen in ended:
        assert code == 0, "\n".join(screen.rows)
    return {screen.columns: screen for _, screen in ended}


@pytest.mark.timeout(180)  # four demos at once, on a machine that may be busy
@pytest.mark.parametrize("columns", COLUMNS)
class TestDemo:
    def test_every_line_fits(self, screens: dict[int, Terminal], columns: int) -> None:
        assert screens[columns].wrapped == []

    def test_the_table_uses_the_width(self, screens: dict[int, Terminal], columns: int) -> None:
        titles = [row for row in screens[columns].rows if row.startswith("── ")]
        assert len(titles) == 4
        assert {len(title) for title in titles} == {columns}

    def test_each_event_has_a_line_of_its_own(
        self, screens: dict[int, Terminal], columns: int
    ) -> None:
        rows = screens[columns].rows
        assert [row for row in rows if len(TIME.findall(row)) > 1] == []
        timed = [row for row in rows if TIME.search(row)]
        assert [row for row in timed if not EVENT.match(row)] == []

    def test_no_event_is_written_over(self, screens: dict[int, Terminal], columns: int) -> None:
        lost = [row for row in screens[columns].lost if EVENT.match(row)]
        assert [row for row in lost if ".delta " not in row] == []
        seen = Counter(
            found[1] for row in screens[columns].rows if (found := EVENT.match(row)) is not None
        )
        expected = WALK | BOOK | CLIMB
        assert {subject: seen[subject] for subject in expected} == expected
        assert seen["task.guide"] == 2
        assert seen["task.surveyor"] == 1

    def test_the_countdown_leaves_nothing(self, screens: dict[int, Terminal], columns: int) -> None:
        assert any("the leases are over in" in row for row in screens[columns].lost)
        assert not any("the leases are over in" in row for row in screens[columns].rows)
