"""Quick tests are found by what they use, and a test that is wrongly one of them fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import quick

HERE = Path(__file__).parent
CONFTEST = """
from pathlib import Path
import pytest
from support import quick
quick.TESTS = Path(__file__).parent
def pytest_configure(config):
    config.pluginmanager.register(quick.QuickTests())
"""
HELPERS = """
import subprocess, sys
def start():
    subprocess.run([sys.executable, "-c", ""], check=True)
class Server:
    def begin(self):
        start()
"""
TESTS = """
import os, socket, subprocess
import pytest
import helpers
from helpers import Server
SCENES = [helpers.start]

@pytest.fixture
def server():
    Server().begin()

def test_plain(): pass
def test_direct(): subprocess.run(["true"], check=True)
def test_by_a_class(): Server().begin()
def test_by_a_module(): helpers.start()
def test_by_a_fixture(server): pass
@pytest.mark.parametrize("scene", SCENES)
def test_by_a_parameter(scene): scene()
def test_in_a_list(): SCENES[0]()
@pytest.mark.needs_process
def test_marked(): subprocess.run(["true"], check=True)
"""
WRONG = """
import importlib, socket
import pytest
def test_hidden(): importlib.import_module("sub" + "process").run(["true"], check=True)
def test_far():
    with socket.socket() as made:
        made.settimeout(0.001)
        made.connect_ex(("192.0.2.1", 80))
def test_nats():
    with socket.socket() as made:
        made.connect_ex(("127.0.0.1", 4222))
def test_near():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
@pytest.mark.needs_process
def test_idle(): pass
"""


def run(folder: Path, *arguments: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n quick\n needs_process\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", *arguments]
    env = os.environ | {"PYTHONPATH": str(HERE)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
    return done.stdout


def names(said: str, outcome: str) -> set[str]:
    lines = [it.split() for it in said.splitlines() if it.startswith(outcome)]
    return {it[1].rpartition("::")[2] for it in lines}


def test_what_leads_to_a_process_is_not_quick(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(TESTS)
    assert names(run(tmp_path, "-m", "quick"), "PASSED") == {"test_plain"}
    assert len(names(run(tmp_path), "PASSED")) == 8


def test_the_guard_finds_wrong_statements(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(WRONG)
    said = run(tmp_path)
    assert names(said, "PASSED") == {"test_near"}
    assert names(said, "FAILED") == {"test_hidden", "test_far", "test_nats", "test_idle"}
    assert "test_hidden counts as quick, but it starts a process" in said
    assert "test_far counts as quick, but it connects to ('192.0.2.1', 80)" in said
    assert "test_idle is marked with needs_process, but starts none. Remove the mark." in said


PARTS = """
import sys
from pathlib import Path
import lanes, quick
lanes.ROOT = quick.ROOT = Path(sys.argv.pop(1))
quick.DURATIONS = quick.ROOT / "durations.json"
sys.exit(quick.main())
"""


def test_parts_take_the_same_time_and_keep_folders_together(tmp_path: Path) -> None:
    for name in ("inner", "last"):
        (tmp_path / name).mkdir()
    names = ["test_y.py", "test_z.py", *(f"inner/test_{it}.py" for it in "abcd"), "last/test_a.py"]
    files = [tmp_path / name for name in names]
    for file in files:
        file.touch()
    measured = {"a": 2.0, "b": 1.0, "c": 1.0, "d": 2.0}
    inside = {f"{tmp_path.name}.inner.test_{name}": it for name, it in measured.items()}
    parts = quick.parts(tmp_path, 3, inside)
    assert parts == [files[:3], files[3:5], files[5:]]
    assert quick.parts(tmp_path, 1, {}) == [files]
    assert quick.parts(tmp_path, 100, {}) == [[it] for it in files]


def test_the_parts_run_and_are_measured(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n quick\n needs_process\n")
    (tests / "test_one.py").write_text("def test_one(): pass\n")
    (tests / "inner").mkdir()
    (tests / "inner" / "test_two.py").write_text("def test_two(): pass\n")

    def said(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-c", PARTS, str(tests), *arguments]
        env = os.environ | {"PYTHONPATH": str(HERE)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tests, env=env)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()[-1]

    code, line = said()
    assert code == 0 and line.startswith("total: 2 passed, 0 failed, 0 skipped; groups: 2;")
    measured = json.loads((tests / "durations.json").read_text())
    assert measured.keys() == {"tests.test_one", "tests.inner.test_two"}
    code, line = said("--", "-k", "test_two")
    assert code == 0 and line.startswith("total: 1 passed, 0 failed")
    (tests / "inner" / "test_two.py").write_text("def test_two(): assert False\n")
    code, line = said()
    assert code == 1 and "1 passed, 1 failed" in line
