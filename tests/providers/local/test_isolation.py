"""Trying to get out of a box, made by root and made by an ordinary user. All must be refused."""

from __future__ import annotations

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sandstream_providers

HERE = Path(__file__).parent
ORDINARY_UID = 12345
TOOLS = {"called", "read", "write", "must_be_new", "main"}
ATTEMPTS = [
    node.name
    for node in ast.parse((HERE / "attacks.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name not in TOOLS
]
HARMLESS = [
    "read_a_secret_in_the_home_of_the_provider",
    "read_the_workspace_of_another_box",
    "list_the_home_of_the_provider",
    "see_processes_of_the_host",
    "connect_to_a_port_of_the_host",
    "connect_to_an_abstract_socket_of_the_host",
    "connect_to_the_socket_of_the_agent",
    "signal_processes_of_the_host",
]
"""Attempts that succeed without isolation and break nothing: they show that the others can."""
STARTERS = ["root", "user"] if os.geteuid() == 0 else ["user"]


def siege(starter: str, isolation: str = "required") -> dict[str, Any]:
    """What came of all attempts in a box that this starter made."""
    done = _done_once(starter, isolation)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["attempts"], result
    return result


@functools.cache
def _done_once(starter: str, isolation: str) -> subprocess.CompletedProcess[str]:
    folder = Path(tempfile.mkdtemp(prefix="sandstream-siege-"))
    try:
        argv = [_python(), str(folder / "lib" / "besieged.py"), str(folder / "home" / "boxes")]
        argv += [isolation, *(HARMLESS if isolation == "none" else [])]
        _copy_what_is_needed(folder)
        if starter == "user" and os.geteuid() == 0:
            _give_away(folder, ORDINARY_UID)
            ids = [f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups"]
            argv = ["setpriv", *ids, "--", *argv]
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(folder / "lib"),
            "HOME": str(folder / "home"),
            "HOST_SECRET": "in-the-hosts-environment",
        }
        return subprocess.run(argv, capture_output=True, text=True, env=env, cwd="/", timeout=55)
    finally:
        shutil.rmtree(folder)


def _python() -> str:
    """An interpreter that another user can run too: the one of this test may lie in a home."""
    return "/usr/bin/python3" if sys.version_info[:2] == _system_python() else sys.executable


def _system_python() -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    said = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True).stdout
    return tuple(map(int, said.split()))


def _copy_what_is_needed(folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "home").mkdir()
    for package in (sandstream_providers, msgspec):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, folder / "lib" / source.name)
    for name in ("besieged.py", "attacks.py"):
        shutil.copy(HERE / name, folder / "lib")


def _give_away(folder: Path, uid: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, uid)


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_refused(attempt: str, starter: str) -> None:
    assert "refused" in siege(starter)["attempts"][attempt], siege(starter)["attempts"][attempt]


@pytest.mark.parametrize("starter", STARTERS)
def test_the_box_works_after_all_that(starter: str) -> None:
    result = siege(starter)
    assert result["after"] == "still here\n"
    assert "bubblewrap" in result["check"]["isolation"]
    assert result["check"]["seccomp"] == "on"


@pytest.mark.parametrize("attempt", HARMLESS)
def test_the_attempts_succeed_where_there_is_no_isolation(attempt: str) -> None:
    assert "got" in siege("user", "none")["attempts"][attempt]
