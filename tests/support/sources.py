"""The sources of the product and of the tests, parsed once for all tests that check them.

Such tests are files at the top of ``tests/``: one process of ``make quick`` runs all of them.
"""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = {
    "sandstream_bus": ROOT / "bus" / "sandstream_bus",
    "sandstream_actors": ROOT / "actors" / "sandstream_actors",
    "sandstream_providers": ROOT / "providers" / "sandstream_providers",
    "sandstream_workspaces": ROOT / "workspaces" / "sandstream_workspaces",
    "sandstream_memory": ROOT / "memory_pipeline" / "sandstream_memory",
    "sandstream": ROOT / "sandstream",
}
"""The packages of the product, by their import names."""


class Import(NamedTuple):
    module: str
    name: str
    line: int
    at_run_time: bool
    """Executed when the module is imported: not for type checkers only, not inside a function."""


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of the product, by their full names."""
    found = {}
    for folder in FOLDERS.values():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


@functools.cache
def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@functools.cache
def nodes(file: Path) -> list[ast.AST]:
    """All nodes of a file, in the order of ``ast.walk``: its tree comes first. ``Load``, ``Store``
    and ``Del``, a third of all, are left out.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        walked = ast.walk(ast.parse(text(file)))
        return [it for it in walked if not isinstance(it, ast.expr_context)]
    finally:
        gc.freeze()  # the nodes stay: the garbage collector need not look at them
        if was_enabled:
            gc.enable()


@functools.cache
def imports(file: Path) -> list[Import]:
    """All imports of a file: also inside functions, and for type checkers only."""
    named = (it for it in nodes(file) if isinstance(it, ast.Call) and is_import_module(it.func))
    return [
        *_imports_below(nodes(file)[0], at_run_time=True),
        *(
            Import(str(it.args[0].value), "", it.lineno, False)
            for it in named
            if isinstance(it.args[0], ast.Constant)
        ),
    ]


def _imports_below(node: ast.AST, *, at_run_time: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, "", child.lineno, at_run_time)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: imports are absolute here"
            for alias in child.names:
                yield Import(child.module or "", alias.name, child.lineno, at_run_time)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _imports_below(
                child, at_run_time=at_run_time and not deferred and not typing_only
            )


def is_import_module(function: ast.expr) -> bool:
    """Whether an expression is ``import_module``, of ``importlib`` or by itself."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "import_module"
