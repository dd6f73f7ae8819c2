"""Every code block of the pages does what the page says, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.doc_blocks import Page, read_page
from docs.doc_runner import PageRunner, conversations_of

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


@pytest.mark.timeout(300)  # a page is a dozen processes and waits out leases of 5 s
@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_block_does_what_the_page_says(path: Path, tmp_path: Path) -> None:
    page = _page(path)
    assert not page.faults, f"a reader cannot follow {_name(path)}: {page.faults}"
    assert not page.indented, f"give these code blocks a fence: {page.indented}"
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


def test_operations_names_every_setting() -> None:
    """Each environment variable that the code knows is explained, and no other."""
    code = [ROOT / "sandstream", ROOT / "bus", ROOT / "actors"]
    sources = [
        file.read_text()
        for folder in code
        for file in folder.rglob("*.py")
        if "testing" not in file.parts
    ]
    name = re.compile(r"\b((?:SANDSTREAM|NATS|OPENAI)_[A-Z][A-Z_]*[A-Z])\b")
    known = {found for source in sources for found in name.findall(source)}
    settings = (ROOT / "docs" / "operations.md").read_text().partition("## Compose")[0]
    explained = set(name.findall(settings.partition("## What survives what")[0]))
    constants = {"SANDSTREAM_LOG", "SANDSTREAM_AGENTS", "SANDSTREAM_PARKED"}
    missing = {each for each in known if not each.startswith("SANDSTREAM_ROUTE")} - explained
    assert not missing - constants
    examples = {each for each in explained if each.startswith("SANDSTREAM_ROUTE_")}
    assert not explained - known - examples - constants
