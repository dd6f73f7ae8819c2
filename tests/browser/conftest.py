"""A browser for all tests of the folder, and where they keep what they have seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.pages.chromium import Chromium

from sandstream._inspect.traces import TracedRun
from sandstream._page.page import page_html

OUTPUT = Path(__file__).resolve().parent.parent / "output" / "browser"


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture
def page_of(tmp_path: Path) -> Callable[[Sequence[TracedRun]], Path]:
    """Writes a page, as ``show --html`` does."""

    def write(runs: Sequence[TracedRun]) -> Path:
        file = tmp_path / "run.html"
        file.write_text(page_html(runs), encoding="utf-8")
        return file

    return write


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """The file of a screenshot that stays after the tests."""
    return lambda name: OUTPUT / f"{name}.png"
