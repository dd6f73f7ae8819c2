"""The tree is the architecture: who may import whom, and how big a room may get."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.xdist_group("sources")  # one process reads all of our sources, once
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "sandstream_bus": ROOT / "bus" / "sandstream_bus",
    "sandstream_actors": ROOT / "actors" / "sandstream_actors",
    "sandstream_providers": ROOT / "providers" / "sandstream_providers",
    "sandstream_workspaces": ROOT / "workspaces" / "sandstream_workspaces",
    "sandstream_memory": ROOT / "memory_pipeline" / "sandstream_memory",
    "sandstream": ROOT / "sandstream",
}
ARROWS = {
    "sandstream_bus": {"sandstream_bus"},
    "sandstream_providers": {"sandstream_providers"},
    "sandstream_workspaces": {"sandstream_bus", "sandstream_providers", "sandstream_workspaces"},
    "sandstream_memory": {"sandstream_bus", "sandstream_memory"},
    "sandstream_actors": {
        "sandstream_bus",
        "sandstream_providers",
        "sandstream_workspaces",
        "sandstream_memory",
        "sandstream_actors",
    },
    "sandstream": {
        "sandstream_bus",
        "sandstream_providers",
        "sandstream_workspaces",
        "sandstream_memory",
        "sandstream_actors",
        "sandstream",
    },
}
KEPT_TO: dict[str, str | tuple[str, ...]] = {
    "nats": "sandstream_bus.",
    "nkeys": "sandstream_bus.",
    "openai": "sandstream_actors.model.",
    "httpx": "sandstream_actors.model.",
    "opentelemetry": "sandstream_actors.tracing.",
    "aiosqlite": ("sandstream_actors.tracing.", "sandstream.memory."),
    "docker": ("sandstream_providers.docker.", "sandstream.sandbox.sandboxes."),
    "daytona": "sandstream_providers.daytona.",
    "e2b": "sandstream_providers.e2b.",
}
"""A foreign package and the only places of ours that may import it."""

MAX_LINES = 500
MAX_LINES_OF_TESTS = 700  # lists of cases, read one at a time
LONG_FOR_A_REASON: dict[str, str] = {}
"""Files over the limit, each with its reason."""

ROOMS = [
    "bus",
    "actors",
    "providers",
    "workspaces",
    "memory_pipeline",
    "sandstream",
    "sandstream/testing",
    "tests",
    "examples",
    "benchmarks",
]
SCREEN_LINES = 60


class Import(NamedTuple):
    module: str
    name: str
    line: int
    at_run_time: bool
    """Executed when the module is imported: not for type checkers only, not inside a function."""


def _modules() -> dict[str, Path]:
    found = {}
    for folder in FOLDERS.values():
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


MODULES = _modules()


@functools.cache
def _imports(file: Path) -> list[Import]:
    return [*_imports_below(ast.parse(file.read_text()), at_run_time=True)]


def _imports_below(node: ast.AST, *, at_run_time: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, "", child.lineno, at_run_time)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: imports are absolute here"
            for alias in child.names:
                yield Import(child.module or "", alias.name, child.lineno, at_run_time)
        elif isinstance(child, ast.Call) and ast.unparse(child.func) == "importlib.import_module":
            if isinstance(child.args[0], ast.Constant):
                yield Import(str(child.args[0].value), "", child.lineno, False)
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _imports_below(
                child, at_run_time=at_run_time and not deferred and not typing_only
            )


def _wrong_imports(allowed: dict[str, set[str]]) -> list[str]:
    wrong = []
    for module, file in MODULES.items():
        may = allowed[module.partition(".")[0]]
        for found in _imports(file):
            target = found.module.partition(".")[0]
            if target.startswith("sandstream") and target not in may:
                wrong.append(f"{file.relative_to(ROOT)}:{found.line} imports {found.module}")
    return wrong


def test_arrows_point_one_way() -> None:
    assert _wrong_imports(ARROWS) == []


def test_foreign_packages_stay_in_their_seam() -> None:
    wrong = []
    for module, file in MODULES.items():
        for found in _imports(file):
            seam = KEPT_TO.get(found.module.partition(".")[0])
            if seam is not None and not f"{module}.".startswith(seam):
                wrong.append(f"{file.relative_to(ROOT)}:{found.line} imports {found.module}")
    assert wrong == []


def test_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for module, file in MODULES.items():
        needs = graph.setdefault(module, set())
        for found in _imports(file):
            submodule = f"{found.module}.{found.name}"
            target = submodule if submodule in MODULES else found.module
            if found.at_run_time and target in MODULES and target != module:
                needs.add(target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as cycle:
        pytest.fail(f"import cycle: {' -> '.join(cycle.args[1])}")


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_says_what_it_is_for(room: str) -> None:
    readme = ROOT / room / "README.md"
    assert readme.is_file(), f"{room}/ needs a README.md: what it is for, what it must not know"
    assert len(readme.read_text().splitlines()) <= SCREEN_LINES, f"{room}/README.md: one screen"


def test_files_stay_readable() -> None:
    """A longer file needs a reason, in LONG_FOR_A_REASON."""
    limits = dict.fromkeys(MODULES.values(), MAX_LINES)
    for folder in ("examples", "docs"):
        limits |= dict.fromkeys((ROOT / folder).rglob("*.py"), MAX_LINES)
    limits |= dict.fromkeys((ROOT / "benchmarks").glob("*.py"), MAX_LINES)
    limits |= dict.fromkeys((ROOT / "tests").rglob("*.py"), MAX_LINES_OF_TESTS)
    long = {
        name: lines
        for file, limit in limits.items()
        if (lines := len(file.read_text().splitlines())) > limit
        and (name := file.relative_to(ROOT).as_posix()) not in LONG_FOR_A_REASON
    }
    assert long == {}


def test_reasons_are_still_needed() -> None:
    for name in LONG_FOR_A_REASON:
        assert len((ROOT / name).read_text().splitlines()) > MAX_LINES, name


MAY_BE_STALE = {
    "bus/sandstream_bus/logs/chain.py",  # by sequence: what is found is never outdated
    "bus/sandstream_bus/nats/fresh.py",  # checks what it gets
    "bus/sandstream_bus/logs/runs.py",  # RunLog.glance
    "sandstream/cli/session.py",  # suggestions for a mistyped id
    "sandstream/_inspect/traces.py",
    "sandstream/_inspect/run_lists.py",
    "sandstream/_inspect/summaries.py",
}
"""Who may read what a replica that lags says: lists and views for people."""


def test_only_what_people_look_at_is_read_from_any_replica() -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for folder in ("sandstream", "bus", "actors", "providers", "workspaces", "memory_pipeline")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "direct.py" and re.search(r"\bstale_\w+\(|DIRECT\.GET", path.read_text())
    }
    for name in ("nats/log_guard", "setup/roles"):  # name the subject only
        users.discard(f"bus/sandstream_bus/{name}.py")
    assert users == MAY_BE_STALE
