"""Running a program of these tests as root and as an ordinary user, each with boxes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import sandstream_providers

HERE = Path(__file__).parent
UIDS = {"user": 12345, "other user": 12346}
"""Ordinary ones. Nobody has handed anything over to the first."""
STARTERS = ["root", "user"] if os.geteuid() == 0 else ["user"]
SECRET = "in-the-hosts-environment"


def run_as(
    starter: str, program: str, *arguments: str, needs: tuple[str, ...] = (), timeout_s: float = 55
) -> subprocess.CompletedProcess[str]:
    """Run a file of this folder; its first argument is a home for boxes, the others follow."""
    folder = Path(tempfile.mkdtemp(prefix="sandstream-siege-"))
    try:
        _copy_what_is_needed(folder, (program, *needs))
        argv = [python(), str(folder / "lib" / program), str(folder / "home" / "boxes")]
        argv += arguments
        if starter != "root" and os.geteuid() == 0:
            uid = UIDS[starter]
            _give_away(folder, uid)
            ids = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
            argv = ["setpriv", *ids, "--", *argv]
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(folder / "lib"),
            "HOME": str(folder / "home"),
            "HOST_SECRET": SECRET,
        }
        return subprocess.run(
            argv, capture_output=True, text=True, env=env, cwd="/", timeout=timeout_s
        )
    finally:
        shutil.rmtree(folder)


def python() -> str:
    """An interpreter that another user can run too: the one of this test may lie in a home."""
    return "/usr/bin/python3" if sys.version_info[:2] == _system_python() else sys.executable


def _system_python() -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    said = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True).stdout
    return tuple(map(int, said.split()))


def _copy_what_is_needed(folder: Path, files: tuple[str, ...]) -> None:
    (folder / "lib").mkdir()
    (folder / "home").mkdir()
    for package in (sandstream_providers, msgspec):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, folder / "lib" / source.name)
    for name in files:
        shutil.copy(HERE / name, folder / "lib")


def _give_away(folder: Path, uid: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, uid)
