"""Texts of the product name their subjects, as the house style asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RIDDLES = re.compile(r"\b(nobody|whoever|somebody|whatever|anybody)\b", re.IGNORECASE)
PACKAGES = ["sandstream", "bus", "actors", "workspaces"]
"""Not yet ``providers`` and ``memory_pipeline``."""


def _riddles(text: str) -> list[str]:
    """The lines with a word that hides who acts, in code, comments, docstrings and messages."""
    return [line.strip() for line in text.splitlines() if RIDDLES.search(line)]


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_name_who_acts(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = {it.relative_to(ROOT).as_posix(): _riddles(it.read_text()) for it in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_riddles_are_found() -> None:
    text = '"""Waits."""\nraise Error("Nobody answers")\nis_body = 1  # somebody\'s\n'
    assert _riddles(text) == ['raise Error("Nobody answers")', "is_body = 1  # somebody's"]
