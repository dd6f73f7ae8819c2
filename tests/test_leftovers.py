"""The tool that looks for leftovers finds them, and a suite that is killed leaves none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lanes
import pytest
from support.processes.leftovers import find, wait_until_none, watched_environment

ROOT = Path(__file__).resolve().parents[1]
SUITE = """
import sys, os
from pathlib import Path
from support.processes import warm_python
from support.nats_server import NatsServer
from support.processes.warm_server import Order

root = Path(sys.argv[1])
(root / "nap.py").write_text("import time; time.sleep(600)")
server = NatsServer(root / "nats")
server.start()
order = Order(str(root / "nap.py"), [], dict(os.environ), str(root), own_session=True)
null = os.open(os.devnull, os.O_RDWR)
program = warm_python.start(order, None, null, null, libraries=())
print("ready", flush=True)
program.wait(600)
"""


@contextmanager
def sleeping(**how: Any) -> Iterator[None]:
    process = subprocess.Popen(["sleep", "600"], **how)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def opened(root: Path) -> Iterator[None]:
    with (root / "run" / "log").open("w") as log, sleeping(stdout=log):
        yield


@contextmanager
def bound(root: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(root / "run" / "socket"))
        yield
    (root / "run" / "socket").unlink()


@contextmanager
def written(root: Path) -> Iterator[None]:
    (root / "forgotten").touch()
    yield
    (root / "forgotten").unlink()


LEFT: dict[str, tuple[Callable[[Path], Any], str]] = {
    "its environment": (lambda root: sleeping(env={"SOME": str(root)}), "process "),
    "its working directory": (lambda root: sleeping(cwd=root), "process "),
    "an open file": (opened, "process "),
    "a socket": (bound, "socket "),
    "a file": (written, "file "),
}


@pytest.mark.parametrize("by", LEFT)
def test_what_is_left_is_found(tmp_path: Path, by: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    watched_environment(root)
    make, kind = LEFT[by]
    assert find(root) == []
    with make(root):
        assert any(line.startswith(kind) for line in find(root)), by
    (root / "run" / "log").unlink(missing_ok=True)
    assert find(root) == []


def test_the_whole_suite_fails_for_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LEFT_S", 0.1)
    for name in ("pytest-of-somebody", "sandbox-local-1"):
        (tmp_path / name).mkdir()
    assert lanes._left(tmp_path) == []
    (tmp_path / "sandstream-plan-1").mkdir()
    with sleeping(cwd=tmp_path):
        process, file = lanes._left(tmp_path)
    assert process.startswith("process ") and process.endswith("sleep 600")
    assert file == f"file {tmp_path}/sandstream-plan-1"


def test_a_suite_that_is_killed_leaves_no_program_and_no_server(tmp_path: Path) -> None:
    kept = {name: it for name, it in os.environ.items() if not name.startswith("PYTHON")}
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, "-c", SUITE, str(tmp_path)],
        env=kept | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
        assert len(find(tmp_path, files=False)) >= 3, "the suite, its server, its program"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert wait_until_none(tmp_path, within_s=20, files=False) == []
