"""The same program on both: `openai-agents` and Sandstream, against the same scripted model."""

from __future__ import annotations

import pytest

from comparison.both import EXPECTED, TESTS, Reports, check, observe_both
from comparison.program import PROGRAMS, load
from comparison.programs import COMPOSITION, DOCKER, TRACING

pytestmark = pytest.mark.timeout(600)  # the first run installs the peer

NAMES = [name for name, it in load().items() if it.topic not in COMPOSITION | DOCKER | TRACING]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    return observe_both(tmp_path_factory.mktemp("comparison"), NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_same_program(name: str, reports: Reports) -> None:
    check(name, reports)


def test_the_table_names_programs() -> None:
    assert {name for row in EXPECTED for name in row.programs} <= set(PROGRAMS)


def test_every_difference_is_explained_to_users() -> None:
    page = (TESTS.parent / "docs" / "differences.md").read_text()
    headings = {line.lstrip("# ") for line in page.splitlines() if line.startswith("#")}
    assert {row.topic for row in EXPECTED} <= headings
