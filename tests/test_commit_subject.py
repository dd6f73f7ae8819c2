"""The check of commit messages, and the hooks that run it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / ".ci" / "commit_subject.py"
fault = runpy.run_path(str(SCRIPT))["fault"]


@pytest.mark.parametrize(
    "message",
    [
        "bus: check every read",
        "bus, actors: embed the server\n\nThe reason.\n",
        "tests/cli: need no server",
        "docs: " + "x" * 66,
        "cli: process no message twice",
        "# a comment of git\ntests: add make quick\n# another",
        "Merge branch 'quick'",
        'Revert "bus: check every read"',
    ],
)
def test_right(message: str) -> None:
    assert fault(message) is None


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("", "empty"),
        ("# only comments", "empty"),
        ("docs: " + "x" * 67, "73 characters; 72 are allowed"),
        ("check every read", "area: imperative"),
        ("Bus: check every read", "area: imperative"),
        ("bus:check every read", "area: imperative"),
        ("bus: ", "area: imperative"),
        ("bus: Check every read", "small letter"),
        ("bus: checked every read", "not an imperative"),
        ("bus: checking every read", "not an imperative"),
        ("bus: fixes a read", "not an imperative"),
        ("bus: the read is checked", "not an imperative"),
        ("bus: check every read.", "full stop"),
        ("bus: check every read\nat once", "second line"),
    ],
)
def test_wrong(message: str, why: str) -> None:
    assert why in (fault(message) or "")


def test_the_hook_refuses_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    command = [sys.executable, str(SCRIPT), str(file)]
    file.write_text("bus: check every read\n")
    assert subprocess.run(command, check=False).returncode == 0
    file.write_text("whatever\n")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("commit message refused: the subject must be `area: imperative`")


def test_the_hooks_need_no_other_host() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    hooks = {it["id"]: it for it in repository["hooks"]}
    assert set(hooks) == {"format", "lint", "types", "subject"}
    assert {it["language"] for it in hooks.values()} == {"system"}
    assert hooks["subject"]["stages"] == ["commit-msg"]
    assert SCRIPT.relative_to(ROOT).as_posix() in hooks["subject"]["entry"]
