"""What a reader gets of the pages: imports that are public, and Markdown that renders as meant."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.doc_blocks import read_page
from docs.test_docs import GENERATED, PAGES, ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GUIDE = (ROOT / "docs" / "guide.md").read_text()
PUBLIC = set(re.findall(r"`sandstream\.(\w+)`", GUIDE.partition("## ")[0]))
"""Sub-packages of `sandstream` for users, as the guide names them."""
NAMES = {"pyyaml": "yaml", "nats-py": "nats"}
"""Distributions whose module has another name."""
RENDERED = [
    *PAGES,
    *(ROOT / "docs" / name for name in sorted(GENERATED)),
    *sorted(ROOT.glob("*/README.md")),
    *sorted(ROOT.glob("C*.md")),
]
_LIST_ITEM = re.compile(r"(?P<indent> *)(?:[-*+]|\d{1,3}[.)])\s+\S")
_INLINE_ITEM = re.compile(r"\S +(\d{1,2})[.)] +(?:\*\*)?[A-Z]")
_CODE = re.compile(r"`[^`]*`")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- imports --------------------------------------------------------------------------------------


def third_parties() -> set[str]:
    """The modules of all packages that the project declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for extra in project["project"]["optional-dependencies"].values():
        declared += extra
    names = [re.split(r"[^\w.-]", line)[0].lower() for line in declared]
    modules = {NAMES.get(name, name.partition("-")[0]) for name in names}
    return modules | {"pydantic"}  # comes with openai, whose types are pydantic's


def imports(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def private(module: str, own: set[str]) -> bool:
    """May a program of a user's not import this?"""
    top, _, rest = module.partition(".")
    if top == "sandstream":
        return bool(rest) and rest.partition(".")[0] not in PUBLIC
    return top not in sys.stdlib_module_names | third_parties() | own


def test_the_guide_names_what_is_public() -> None:
    assert {"sandbox", "events", "testing"} <= PUBLIC
    for name in PUBLIC:
        assert importlib.util.find_spec(f"sandstream.{name}") is not None


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_pages_import_only_what_is_public(path: Path) -> None:
    blocks = [it for it in read_page(path, path.read_text()).blocks if it.lang == "python"]
    own = {Path(it.marks["name"]).stem for it in blocks if "name" in it.marks}
    found = [
        f"{block.where}: {module}"
        for block in blocks
        for module in imports(block.text)
        if private(module, own)
    ]
    assert not found


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_examples_import_only_what_is_public(path: Path) -> None:
    own = {file.stem for file in EXAMPLES}
    assert [it for it in imports(path.read_text()) if private(it, own)] == []


def test_pages_tell_nobody_to_use_what_is_not_public() -> None:
    """A dotted name in the text is something to import, a path is where the code is."""
    dotted = re.compile(r"`(sandstream_\w+\.\w[\w.]*)")
    users = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert [found for path in users for found in dotted.findall(path.read_text())] == []


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_pages_that_use_the_nats_command_say_how_to_get_it(path: Path) -> None:
    """It does not come with us, unlike `nats-server`."""
    page = read_page(path, path.read_text())
    shell = "\n".join(block.text for block in page.blocks if block.lang == "sh")
    if re.search(r"(?:^|[\s(])nats (?:pub|req|sub|stream|consumer|server)\b", shell):
        assert "the-nats-command" in page.anchors or any(
            link.endswith("wire.md#the-nats-command") for link in page.links
        )


# --- rendering ------------------------------------------------------------------------------------


def unrendered(text: str) -> list[str]:
    """Lines that Markdown does not render as they look: by line number."""
    found: list[str] = []
    fence = ""
    before = ""
    columns = 0
    for number, line in enumerate(_without_comments(text).splitlines(), 1):
        stripped = line.strip()
        if fence:
            if stripped == fence:
                fence = ""
            before = ""
            continue
        if stripped.startswith(("```", "~~~")):
            if before and not _is_in_list(line):
                found.append(f"{number}: a fence right after a paragraph")
            fence = stripped[:3]
            continue
        found += [f"{number}: {fault}" for fault in _faults(line, before, columns)]
        columns = _cells(line) if stripped.startswith("|") else 0
        before = line if stripped else ""
    if fence:
        found.append("the last fence has no end")
    return found


def _faults(line: str, before: str, columns: int) -> Iterator[str]:
    stripped = line.strip()
    in_paragraph = bool(before) and not before.lstrip().startswith(("#", "|", "<"))
    item = _LIST_ITEM.match(line)
    if item and in_paragraph and not _is_in_list(before) and not _LIST_ITEM.match(before):
        yield "a list item in the middle of a paragraph: leave a line blank before it"
    if len(_INLINE_ITEM.findall(_CODE.sub("", line))) > 1:
        yield "several numbered items in one line"
    if stripped.startswith("|"):
        if in_paragraph:
            yield "a table right after a paragraph: leave a line blank before it"
        if columns and _cells(line) != columns:
            yield f"a row of {_cells(line)} cells in a table of {columns}"
    elif before.lstrip().startswith("|") and stripped:
        yield "a line right after a table becomes a row of it"
    if re.match(r"#{1,6}[^#\s]", stripped):
        yield "a heading without a space"


def _is_in_list(line: str) -> bool:
    """Does it go on with the text of an item?"""
    return line.startswith("  ")


def _cells(row: str) -> int:
    return len(re.split(r"(?<!\\)\|", _CODE.sub("", row.strip().strip("|"))))


def _without_comments(text: str) -> str:
    return re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)


@pytest.mark.parametrize("path", RENDERED, ids=_name)
def test_pages_render_as_they_look(path: Path) -> None:
    assert unrendered(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("In this order:\n1. **Commit.** Publish.\n2. **Ack.**\n", "middle of a paragraph"),
        ("There are two:\n- one\n- two\n", "middle of a paragraph"),
        ("In order: 1. Commit. 2. Dispatch. 3. Ack.\n", "several numbered items"),
        ("A table:\n| a |\n|---|\n", "right after a paragraph"),
        ("| a | b |\n|---|---|\n| 1 |\n", "a row of 1 cells"),
        ("| a |\n|---|\nAnd so on.\n", "becomes a row"),
        ("#Heading\n", "without a space"),
        ("```sh\nls\n", "no end"),
        ("Run:\n```sh\nls\n```\n", "right after a paragraph"),
    ],
)
def test_what_renders_wrongly_is_found(text: str, fault: str) -> None:
    (found,) = unrendered(text)
    assert fault in found


def test_lists_with_long_items_are_fine() -> None:
    first = "In order:\n\n1. One\n   goes on.\n2. Two\n   - inner\n   - more\n"
    text = f"{first}\n   A paragraph.\n3. Three\n"
    assert unrendered(text) == []
