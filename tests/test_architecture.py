"""The tree is the architecture: who may import whom, and how big a room may get."""

from __future__ import annotations

import graphlib
import re

import pytest
from support.sources import ROOT, imports, modules, text

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
    "daytona_api_client_async": "sandstream_providers.daytona.",
    "daytona_toolbox_api_client_async": "sandstream_providers.daytona.",
    "aiohttp": "sandstream_providers.daytona.",
    "e2b": "sandstream_providers.e2b.",
    "textual": ("sandstream.tui.", "sandstream.cli.commands.tui."),
    "rich": "sandstream.tui.",
    "markdown_it": "sandstream.tui.",
}
"""A foreign package and the only places of ours that may import it."""

MAX_LINES = 500
MAX_LINES_OF_TESTS = 700  # lists of cases, read one at a time
LONG_FOR_A_REASON: dict[str, str] = {
    "sandstream/client.py": "every method documents its arguments",
    "sandstream/tool.py": "the fields and arguments of tools are documented one by one",
}
"""Files over the limit, each with its reason."""

ROOMS = [
    "bus",
    "actors",
    "providers",
    "workspaces",
    "memory_pipeline",
    "sandstream",
    "sandstream/testing",
    "sandstream/tui",
    "tests",
    "examples",
    "benchmarks",
]
SCREEN_LINES = 60


def _wrong_imports(allowed: dict[str, set[str]]) -> list[str]:
    wrong = []
    for module, file in modules().items():
        may = allowed[module.partition(".")[0]]
        for found in imports(file):
            target = found.module.partition(".")[0]
            if target.startswith("sandstream") and target not in may:
                wrong.append(f"{file.relative_to(ROOT)}:{found.line} imports {found.module}")
    return wrong


def test_arrows_point_one_way() -> None:
    assert _wrong_imports(ARROWS) == []


def test_foreign_packages_stay_in_their_seam() -> None:
    wrong = []
    for module, file in modules().items():
        for found in imports(file):
            seam = KEPT_TO.get(found.module.partition(".")[0])
            if seam is not None and not f"{module}.".startswith(seam):
                wrong.append(f"{file.relative_to(ROOT)}:{found.line} imports {found.module}")
    assert wrong == []


def test_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for module, file in modules().items():
        needs = graph.setdefault(module, set())
        for found in imports(file):
            submodule = f"{found.module}.{found.name}"
            target = submodule if submodule in modules() else found.module
            if found.at_run_time and target in modules() and target != module:
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
    limits = dict.fromkeys(modules().values(), MAX_LINES)
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
    "sandstream/cli/session.py",  # suggestions for a mistyped id
    "sandstream/_inspect/traces.py",
    "sandstream/_inspect/run_lists.py",
    "sandstream/_inspect/summaries.py",
}
"""Who may read what a replica that lags says: lists and views for people."""


def test_only_what_people_look_at_is_read_from_any_replica() -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in modules().values()
        if path.name != "direct.py" and re.search(r"\bstale_\w+\(|DIRECT\.GET", text(path))
    }
    for name in ("nats/log_guard", "setup/roles"):  # name the subject only
        users.discard(f"bus/sandstream_bus/{name}.py")
    assert users == MAY_BE_STALE
