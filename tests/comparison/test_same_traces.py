"""The same program on both, with a trace processor: which spans it is told of, below what, with
which data and errors. A file of its own, so that it can run beside the others.
"""

from __future__ import annotations

import pytest

from comparison.both import Reports, check, observe_both
from comparison.program import load
from comparison.programs import TRACING

pytestmark = pytest.mark.timeout(600)  # the first run installs the peer

NAMES = [name for name, it in load().items() if it.topic in TRACING]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    return observe_both(tmp_path_factory.mktemp("comparison"), NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_same_program(name: str, reports: Reports) -> None:
    check(name, reports)
