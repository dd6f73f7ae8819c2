"""The room that reads runs for people knows no view of them, and no view reads runs by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.sources import FOLDERS, is_import_module, nodes

HOME = FOLDERS["sandstream"]
VIEWS = ("sandstream.cli", "sandstream._page")
FOLDS = (
    "sandstream_actors.run.state",
    "sandstream_actors.run.places",
    "sandstream_actors.run.takeovers",
    "sandstream_actors.tracing.fold.run_trace",
)
"""What turns events into the state, the counts or the trace of a run."""


def imports(found: Iterable[ast.AST]) -> Iterator[str]:
    """All modules that a source names: also inside functions, and for type checkers only."""
    for node in found:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and is_import_module(node.func):
            yield from (str(it.value) for it in node.args if isinstance(it, ast.Constant))


def found_in(room: str, forbidden: tuple[str, ...]) -> list[str]:
    files = sorted((HOME / room).rglob("*.py"))
    assert files, f"sandstream/{room} is empty: has the room moved?"
    return [
        f"{file.relative_to(HOME)} imports {name}"
        for file in files
        for name in imports(nodes(file))
        if any(f"{name}.".startswith(f"{it}.") for it in forbidden)
    ]


def test_the_reader_of_runs_knows_no_view() -> None:
    assert found_in("_inspect", VIEWS) == []


def test_the_page_knows_no_terminal() -> None:
    assert found_in("_page", ("sandstream.cli",)) == []


@pytest.mark.parametrize("room", ["cli", "_page"])
def test_views_read_runs_only_through_the_reader(room: str) -> None:
    assert found_in(room, FOLDS) == []


@pytest.mark.parametrize("fold", FOLDS)
def test_the_folds_are_where_this_test_looks_for_them(fold: str) -> None:
    package, *names = fold.split(".")
    path = FOLDERS[package] / Path(*names)
    assert path.with_suffix(".py").is_file(), f"{fold} has moved: change FOLDS"


def test_every_kind_of_import_is_seen() -> None:
    text = (
        "import a.b\n"
        "from c import d\n"
        "if TYPE_CHECKING:\n    from e import f\n"
        "def g():\n    import h\n    importlib.import_module('i.j')\n"
    )
    assert set(imports(ast.walk(ast.parse(text)))) == {"a.b", "c.d", "e.f", "h", "i.j"}
