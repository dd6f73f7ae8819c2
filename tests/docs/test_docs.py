"""Every code block of the pages does what the page says, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_blocks import Page, read_page
from doc_runner import PageRunner, conversations_of

from sandstream.testing import ScriptedModel

ROOT = Path(__file__).parents[2]
GENERATED = {"cli.md"}
"""Written by a program from the code; that program's own check covers them."""
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED),
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _page(path: Path) -> Page:
    return read_page(path, path.read_text())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_block_does_what_the_page_says(path: Path, tmp_path: Path) -> None:
    page = _page(path)
    if not page.blocks:
        return
    with (
        ScriptedModel(conversations=conversations_of(page)) as model,
        PageRunner(page, tmp_path, model) as runner,
    ):
        runner.run()


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_link_leads_somewhere(path: Path) -> None:
    page = _page(path)
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), f"{_name(path)}: no {link}"
        if anchor and file.suffix == ".md":
            assert anchor in _page(file).anchors, f"{_name(path)}: no heading for {link}"


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_pages_name_no_machine(path: Path) -> None:
    found = re.findall(r"/(?:work|root|home|Users)/\S*", path.read_text())
    assert not found, f"{_name(path)} names paths of a machine: {found}"
