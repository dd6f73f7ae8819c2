"""What a user gets: the wheel, its names, its entry point."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", str(out), str(ROOT)])
    (found,) = out.glob("sandstream-*.whl")
    return found


def _run(command: list[str], environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=environ, cwd=Path(sys.prefix), check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_every_top_level_name_is_ours(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in _names(wheel)}
    assert {"sandstream", "sandstream_bus", "sandstream_actors"} <= tops
    assert [top for top in tops if not top.startswith("sandstream")] == []


def test_no_name_of_ours_belongs_to_somebody_else() -> None:
    """Another distribution that ships our import names would overwrite us without a word."""
    owners = importlib.metadata.packages_distributions()
    for name in ("sandstream", "sandstream_bus", "sandstream_actors"):
        assert set(owners.get(name, ["sandstream"])) == {"sandstream"}


def test_the_wheel_is_typed_and_holds_no_tests(wheel: Path) -> None:
    names = _names(wheel)
    for package in ("sandstream", "sandstream_bus", "sandstream_actors"):
        assert f"{package}/py.typed" in names
    assert [name for name in names if "test_" in name or "/tests/" in name] == []
    assert [name for name in names if name.endswith((".pyc", ".md"))] == []


def test_every_module_is_in_the_wheel(wheel: Path) -> None:
    names = set(_names(wheel))
    for folder in (ROOT, ROOT / "bus", ROOT / "actors"):
        for file in folder.glob("sandstream*/**/*.py"):
            assert file.relative_to(folder).as_posix() in names


def test_what_pages_are_made_of_is_in_the_wheel(wheel: Path) -> None:
    names = set(_names(wheel))
    assets = [it for it in (ROOT / "sandstream/looking/page_assets").iterdir() if it.is_file()]
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


def test_the_installed_wheel_works(wheel: Path, tmp_path: Path) -> None:
    """The wheel's own copy of us, beside this environment's dependencies, out of the checkout."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-index"]
    _run([*pip, "--target", str(site), str(wheel)])
    environ = {**os.environ, "PYTHONPATH": str(site)}
    where = _run([sys.executable, "-c", "import sandstream; print(sandstream.__file__)"], environ)
    assert where.startswith(str(site))
    version = _run([str(site / "bin" / "sandstream"), "--version"], environ)
    assert version.strip().endswith(importlib.metadata.version("sandstream"))


def test_every_public_name_can_be_imported() -> None:
    code = "import sandstream; [getattr(sandstream, name) for name in sandstream.__all__]"
    _run([sys.executable, "-W", "error", "-c", code])


def test_importing_is_cheap() -> None:
    """The names are loaded on first use: no vendor package, no network client at import."""
    code = "import sys, sandstream; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = _run([sys.executable, "-c", code]).split()
    assert [name for name in ("openai", "nats", "pydantic", "httpx") if name in loaded] == []
