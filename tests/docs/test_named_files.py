"""The files, folders and modules that a page names exist: a rename leaves no wrong name behind."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = {
    "sandstream_bus": "bus",
    "sandstream_providers": "providers",
    "sandstream_workspaces": "workspaces",
    "sandstream_memory": "memory_pipeline",
    "sandstream_actors": "actors",
}
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
INDENTED = re.compile(r"^ {4}.*$", re.M)
CONTEXT = re.compile(r"^## Context\n.*?(?=^## )", re.M | re.S)
"""The part of a decision that describes the code before it."""
QUOTED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.-]+(/[\w.-]+)*\.(py|md|sh|ya?ml|toml|conf|js|css|html)")
FOLDER = re.compile(r"(\.\./)*[a-z_][\w.-]*(/[\w.-]+)*/")
MODULE = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)+")
MADE_BY_READER = re.compile(r"<!-- doctest:.*\bname=(\S+)")
"""A file that the reader of the page saves."""

NOT_IN_THE_TREE = {
    "tui.toml": "the settings of the terminal UI, in the state directory",
    "MEMORY.md": "a file of every memory",
    "memory_summary.md": "a file of every memory",
    "skills/": "a folder of every memory",
    "SKILL.md": "a file of every skill",
    "docs/adr/NNNN-title.md": "a pattern",
    "tests/output/browser/": "written by the tests",
    "memories/": "a folder of every workspace with a memory",
    "auth.conf": "written by `sandstream setup --auth-dir`",
    "DIR/auth.conf": "written by `sandstream setup --auth-dir`",
}
"""Names that pages may use although the repository has no such file, with the reason."""


@cache
def tree() -> frozenset[str]:
    """All files and folders as ``/path`` and ``/path/``, without hidden and generated ones."""
    found = set()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [it for it in folders if not it.startswith((".", "__")) and it != "output"]
        path = Path(folder).relative_to(ROOT).as_posix()
        prefix = "/" if path == "." else f"/{path}/"
        found |= {prefix, *(prefix + it for it in files)}
    return frozenset(found)


def pages() -> list[str]:
    return sorted(
        it[1:]
        for it in tree()
        if it.endswith("/README.md")
        or it == "/CONTRIBUTING.md"
        or (it.startswith("/docs/") and it.endswith(".md"))
    )


def missing_in(page: str, text: str) -> list[str]:
    """The paths and modules in backticks, outside of code blocks, that do not exist."""
    made = set(MADE_BY_READER.findall(text))
    prose = INDENTED.sub("", FENCED.sub("", text))
    if page.startswith("docs/adr/"):
        prose = CONTEXT.sub("", prose)
    quoted = {*QUOTED.findall(prose)} - made - NOT_IN_THE_TREE.keys()
    paths = {it for it in quoted if FILE.fullmatch(it) or FOLDER.fullmatch(it)}
    modules = {it for it in quoted if MODULE.fullmatch(it) and it not in paths}
    return sorted(
        [it for it in paths if not has_path(page, it)]
        + [it for it in modules if not has_module(it)]
    )


def has_path(page: str, name: str) -> bool:
    """A path is relative to the page, to the root, or to a folder inside the page's component."""
    if (ROOT / page).parent.joinpath(name).exists() or (ROOT / name).exists():
        return True
    component = "/" if page.startswith("docs/") or "/" not in page else f"/{page.split('/')[0]}/"
    return any(it.startswith(component) and it.endswith(f"/{name}") for it in tree())


def has_module(name: str) -> bool:
    """``package.module``, or ``package.module.Name``."""
    package, *parts = name.split(".")
    top = f"/{PACKAGES[package]}/{package}"
    return any(
        f"{'/'.join([top, *parts[:length]])}{ending}" in tree()
        for length in (len(parts), len(parts) - 1)
        if length
        for ending in (".py", "/")
    )


@pytest.mark.parametrize("page", pages())
def test_named_files_exist(page: str) -> None:
    assert missing_in(page, (ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("page", "text", "missing"),
    [
        ("docs/a.md", "`run/state.py` and `harness/no_such.py`", ["harness/no_such.py"]),
        ("bus/README.md", "`wire/` and `harness/steps.py`", ["harness/steps.py"]),
        (
            "docs/a.md",
            "`sandstream_actors.base.Actor`, `sandstream_bus.gone.X`",
            ["sandstream_bus.gone.X"],
        ),
        ("docs/a.md", "<!-- doctest: name=my.py -->\n```python\n`no.py`\n```\nRun `my.py`.", []),
        ("docs/adr/1.md", "## Context\n`old.py`\n## Decision\n`new.py`", ["new.py"]),
    ],
)
def test_a_wrong_name_is_found(page: str, text: str, missing: list[str]) -> None:
    assert missing_in(page, text) == missing


def test_exceptions_are_still_needed() -> None:
    named = {
        name
        for page in pages()
        for name in QUOTED.findall((ROOT / page).read_text(encoding="utf-8"))
    }
    assert [it for it in NOT_IN_THE_TREE if it not in named] == []
