"""Promises of READMEs and of CONTRIBUTING that no other test checks."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.sources import ROOT, imports, modules, nodes, text

# --- "must not know" ------------------------------------------------------------------------------

MAY_IMPORT = {
    "sandstream_memory": {
        "sandstream_memory",
        "sandstream_bus.wire.memories",
        "sandstream_bus.wire.sandbox_specs",
        "msgspec",
    },
    "sandstream_workspaces": {
        "sandstream_workspaces",
        "sandstream_bus.bus",
        "sandstream_bus.counts",
        "sandstream_bus.errors",
        "sandstream_bus.nats",
        "sandstream_bus.nats.objects",
        "sandstream_providers.interface",
        "msgspec",
    },
    "sandstream.testing": {"sandstream.testing", "sandstream_bus.counts", "msgspec"},
}
"""By package: the modules that it may import besides the standard library."""

IMPURE = {
    *("asyncio", "io", "logging", "os", "pathlib", "random", "secrets", "shutil", "socket"),
    *("subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid"),
}
"""What a package of pure functions must not import: clock, environment, files, processes."""
CLOCKS = {"now", "utcnow", "today"}


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_its_readme_says(package: str) -> None:
    allowed = MAY_IMPORT[package]
    exact = {it for it in allowed if it.startswith("sandstream_bus") or "interface" in it}
    wrong = [
        f"{file.relative_to(ROOT)}:{found.line} imports {found.module}"
        for module, file in modules().items()
        if is_below(module, package)
        for found in imports(file)
        if found.module.partition(".")[0] not in sys.stdlib_module_names
        and found.module not in exact
        and not any(is_below(found.module, it) for it in allowed - exact)
    ]
    assert wrong == []


def test_the_memory_pipeline_is_pure() -> None:
    wrong = []
    for module, file in modules().items():
        if not is_below(module, "sandstream_memory"):
            continue
        used = {found.module.partition(".")[0] for found in imports(file)} & IMPURE
        wrong += [f"{module} imports {it}" for it in sorted(used)]
        wrong += [f"{module}:{it.lineno} calls {name}()" for it, name in impure_calls(nodes(file))]
    assert wrong == []


def impure_calls(found: list[ast.AST]) -> list[tuple[ast.Call, str]]:
    calls = [it for it in found if isinstance(it, ast.Call)]
    by_attribute = [
        (it, it.func.attr)
        for it in calls
        if isinstance(it.func, ast.Attribute) and it.func.attr in CLOCKS
    ]
    return by_attribute + [
        (it, "open") for it in calls if isinstance(it.func, ast.Name) and it.func.id == "open"
    ]


def test_an_impure_call_is_found() -> None:
    found = impure_calls(
        [*ast.walk(ast.parse("datetime.now(UTC); open('x'); a.replace('b', 'c')"))]
    )
    assert [name for _, name in found] == ["now", "open"]


# --- plain language -------------------------------------------------------------------------------

RIDDLES = re.compile(r"\b(nobody|whoever|somebody|anybody|whatever)\b", re.I)
MOST_RIDDLES = {"sandstream_providers": 1, "sandstream_memory": 1}
"""By package, if not none. One is the name of a system user. One is in a prompt of the memory
pipeline: a new text would be a new prompt."""


def test_code_names_its_subjects() -> None:
    counts: dict[str, list[str]] = {}
    for module, file in modules().items():
        for number, line in enumerate(text(file).splitlines(), start=1):
            if RIDDLES.search(line):
                counts.setdefault(module.partition(".")[0], []).append(f"{module}:{number}")
    too_many = {
        it: places for it, places in counts.items() if len(places) > MOST_RIDDLES.get(it, 0)
    }
    assert too_many == {}


QUOTED_RIDDLES = {
    "CONTRIBUTING.md": 1,  # names the words that these tests refuse
    "docs/composition.md": 1,  # what a user says in an example
    "docs/guide.md": 2,  # the same
}
"""By page, the lines that may have such a word."""


def test_pages_name_their_subjects() -> None:
    files = [ROOT / "compose.yaml", *ROOT.glob("*.md"), *ROOT.glob("*/README.md")]
    files += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "sandstream").rglob("*.md")]
    counts = {
        file.relative_to(ROOT).as_posix(): len(lines)
        for file in files
        if (lines := [it for it in file.read_text().splitlines() if RIDDLES.search(it)])
    }
    assert counts == QUOTED_RIDDLES


# --- tests without mocks --------------------------------------------------------------------------

USES_MOCK = {"cli_process.py": "the environment and the standard input of a command"}
WRAPS_OUR_CODE = {
    "test_connection.py": "records errors, and calls the original",
    "test_run_log.py": "one read fails before the original is called",
    "test_rivals.py": "the live copy of a message gets lost",
    "test_log_guard.py": "an event is stored during the original call",
    "test_sources.py": "records the files that are opened, and calls the original",
    "test_memory_elsewhere.py": "the same actor with shorter pauses",
    "test_session_events.py": "fails if an event is created",
    "test_model_providers.py": "new defaults of the process",
    "test_sessions.py": "new defaults of the process",
    "test_rooms.py": "shows the check another tree",
}
"""Tests that replace something of ours other than a constant, with what they do instead."""
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
FOREIGN = {"sys", "tempfile", "os"}


class Patch:
    """A call of ``monkeypatch.setattr``."""

    def __init__(self, call: ast.Call) -> None:
        """``setattr(owner, "name", value)`` or ``setattr("module.name", value)``."""
        first, second = call.args[0], call.args[1]
        if isinstance(first, ast.Constant):
            self.root, _, rest = str(first.value).partition(".")
            self.name = rest.rpartition(".")[2]
        elif isinstance(second, ast.Constant) and len(call.args) > 2:
            self.root, self.name = ast.unparse(first).partition(".")[0], str(second.value)
        else:
            self.root = self.name = ast.unparse(first)

    @property
    def is_of_our_code(self) -> bool:
        return self.root not in FOREIGN and not CONSTANT.fullmatch(self.name)


MAY_REPLACE = re.compile(r"monkeypatch\.setattr|mock|unittest")


@functools.cache
def sources_of_tests() -> dict[Path, list[ast.AST]]:
    """The nodes of the tests that may replace something."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    return {file: nodes(file) for file in files if MAY_REPLACE.search(text(file))}


def patches(found: Iterable[ast.AST]) -> list[Patch]:
    return [
        Patch(it)
        for it in found
        if isinstance(it, ast.Call)
        and isinstance(it.func, ast.Attribute)
        and ast.unparse(it.func) == "monkeypatch.setattr"
    ]


def test_tests_do_not_use_mocks() -> None:
    users = {
        file.name
        for file, found in sources_of_tests().items()
        for it in found
        if (isinstance(it, ast.ImportFrom) and (it.module or "").startswith("unittest"))
        or (isinstance(it, ast.Import) and any("mock" in alias.name for alias in it.names))
    }
    assert users == USES_MOCK.keys()


def test_tests_replace_only_constants_of_ours() -> None:
    found = {
        file.name
        for file, inside in sources_of_tests().items()
        if any(it.is_of_our_code for it in patches(inside))
    }
    assert found == WRAPS_OUR_CODE.keys()


@pytest.mark.parametrize(
    ("source", "is_ours"),
    [
        ("monkeypatch.setattr(bus.log, 'read', fake)", True),
        ("monkeypatch.setattr('sandstream_bus.bus.Bus', fake)", True),
        ("monkeypatch.setattr('sandstream_bus.logs.runs.PUBLISH_BUDGET_S', 1)", False),
        ("monkeypatch.setattr(keeper, '_STALE_S', 1)", False),
        ("monkeypatch.setattr(sys, 'stdin', text)", False),
        ("monkeypatch.setattr('sys.stdout', paper)", False),
    ],
)
def test_a_replaced_function_is_found(source: str, is_ours: bool) -> None:
    assert [it.is_of_our_code for it in patches(ast.walk(ast.parse(source)))] == [is_ours]


# --- decisions ------------------------------------------------------------------------------------

DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
PAGE_LINES = 60


@pytest.mark.parametrize("page", DECISIONS, ids=lambda it: it.name[:4])
def test_a_decision_is_one_page_with_all_parts(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= PAGE_LINES
    assert lines[0].startswith(f"# {page.name[:4]}. ")
    parts = [it for it in lines if it.startswith(("## ", "Status: "))]
    assert parts[0].startswith("Status: ")
    assert parts[1:] == ["## Context", "## Decision", "## Consequences"]
    assert page.name in (page.parent / "README.md").read_text(encoding="utf-8")
