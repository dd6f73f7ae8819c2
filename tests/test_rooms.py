"""The rooms of the code: each imports only what comes before it, and the page shows it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from support.sources import ROOT, nodes

GENERATOR = ROOT / "docs" / "generate_rooms.py"
MOST_MODULES = 25
"""In one folder, without its ``__init__.py``."""
LARGE_FOR_A_REASON = {
    "sandstream": (40, "the SDK's import paths decide which modules are here"),
    "benchmarks": (39, "one module for each figure"),
    "examples": (30, "a numbered series"),
    "tests/comparison/programs": (32, "a list of programs"),
}
"""Larger folders: their own limit, and why. They may become smaller, but not larger."""
MIRRORED = {
    "actors": "actors/sandstream_actors",
    "bus": "bus/sandstream_bus",
    "cli": "sandstream/cli",
    "memory_pipeline": "memory_pipeline/sandstream_memory",
    "providers": "providers/sandstream_providers",
    "sandstream": "sandstream",
    "workspaces": "workspaces/sandstream_workspaces",
}
"""The folders of tests that mirror a package, and the package."""
NOUNS = ("tracing", "sampling")
"""Module names may end in these words."""


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_rooms", GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.nodes = nodes  # type: ignore[attr-defined]  # parsed once for all tests
    return module


ROOMS = generator()


def test_no_room_imports_one_that_comes_after_it() -> None:
    assert ROOMS.wrong_arrows() == []


def test_no_knot_of_imports_spans_two_rooms() -> None:
    spanning = [
        (rooms, group)
        for group in ROOMS.knots()
        if len(rooms := {ROOMS.room_of(it) for it in group}) > 1
    ]
    assert spanning == []


def test_a_knot_is_found_whatever_its_imports_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a lazy import, a type-only import and an import by name."""
    texts = {
        "sandstream.one": "def f():\n    import sandstream._run.two",
        "sandstream._run.two": "if TYPE_CHECKING:\n    from sandstream.cli.three import Three",
        "sandstream.cli.three": "importlib.import_module('sandstream.one')",
        "sandstream.cli.four": "import sandstream.one",
    }
    files = {name: tmp_path / f"{number}.py" for number, name in enumerate(texts)}
    for name, file in files.items():
        file.write_text(texts[name])
    monkeypatch.setattr(ROOMS, "modules", lambda: files)
    assert ROOMS.knots() == [["sandstream._run.two", "sandstream.cli.three", "sandstream.one"]]


@pytest.mark.parametrize(
    ("source", "text", "target"),
    [
        ("sandstream.tool", "from sandstream._run import call", "sandstream._run.call"),
        ("sandstream.tool", "def f():\n    import sandstream._run.call", "sandstream._run.call"),
        (
            "sandstream_actors.harness.steps",
            "if TYPE_CHECKING:\n    from sandstream_actors.sandbox.actor import SandboxActor",
            "sandstream_actors.sandbox.actor",
        ),
        (
            "sandstream_bus.wire.messages",
            "importlib.import_module('sandstream_bus.bus')",
            "sandstream_bus.bus",
        ),
    ],
)
def test_an_import_against_the_arrows_is_found_wherever_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, text: str, target: str
) -> None:
    file = tmp_path / "module.py"
    file.write_text(text)
    known = {**ROOMS.modules(), source: file}
    monkeypatch.setattr(ROOMS, "modules", lambda: known)
    assert [line.split(": ")[0].split(" ")[-1] for line in ROOMS.wrong_arrows()] == [target]


def test_every_module_is_in_a_room() -> None:
    names = {room.name for room in ROOMS.ROOMS}
    assert {ROOMS.room_of(it) for it in ROOMS.modules() if it not in ROOMS.FOLDERS} <= names


def test_rooms_name_modules_that_exist() -> None:
    known = ROOMS.modules()
    for room in ROOMS.ROOMS:
        package = room.name.partition(":")[0]
        assert package in known
        assert [it for it in room.modules if f"{package}.{it}" not in known] == []


def test_the_page_shows_the_rooms() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _sizes() -> Counter[str]:
    """How many modules each folder with code has."""
    files = {*ROOMS.modules().values()}
    for folder in ("benchmarks", "docs", "examples", "tests"):
        files |= {*(ROOT / folder).rglob("*.py")}
    folders = [it.parent.relative_to(ROOT).as_posix() for it in files if it.stem != "__init__"]
    return Counter(it for it in folders if "/." not in it)  # hidden: installed for the benchmarks


def test_no_folder_becomes_a_hall() -> None:
    halls = {
        folder: size
        for folder, size in _sizes().items()
        if size > LARGE_FOR_A_REASON.get(folder, (MOST_MODULES, ""))[0]
    }
    assert halls == {}


def test_every_large_folder_is_still_large() -> None:
    sizes = _sizes()
    assert [it for it in LARGE_FOR_A_REASON if sizes[it] <= MOST_MODULES] == []


def test_the_folders_of_tests_mirror_the_product() -> None:
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    unlike = {
        str(folder)
        for folder in folders
        if folder.parts and (product := MIRRORED.get(folder.parts[0])) is not None
        if not ROOT.joinpath(product, *folder.parts[1:]).is_dir()
    }
    assert unlike == set()


def test_modules_are_named_by_nouns() -> None:
    names = {
        module
        for module, file in ROOMS.modules().items()
        if file.stem.endswith("ing") and not file.stem.endswith(NOUNS)
    }
    assert names == set()
