"""The examples that say they are portable are: `openai-agents` runs them and they print the same.

Only import lines change: `sandstream` becomes `agents`. The scripts of the model stay ours, in a
server here; what the examples use to make them is replaced by modules that do nothing. The peer's
client has no `close`: it gets one that does nothing, too. Its sandboxes have the host's ports and
leave their processes behind: the example that serves a page gets a free port, and what is left is
ended.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import warm_python
from support.processes.warm_server import Order

from comparison.peer import peer_python
from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(600)  # the first run installs the peer

LIBRARIES = ("mcp", "openai.types.responses", "pydantic")
"""What both need, of others."""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STARTS = {
    "11_shell": 1,
    "12_multi_turn": 1,
    "13_pause_and_resume": 2,
    "14_handoffs": 1,
    "15_agents_as_tools": 1,
    "16_custom_capability": 1,
    "17_approvals": 2,
    "18_tracing": 1,
}
"""Example -> how often it is started: those that save something go on with it."""
TRACED = {"18_tracing"}
"""They replace the peer's processors, which would send traces to its vendor."""
OFFLINE = """
from contextlib import nullcontext
from agents.sandbox.sandboxes import UnixLocalSandboxClient

async def close(self):
    pass

assert not hasattr(UnixLocalSandboxClient, "close"), "the peer has it now: remove this"
UnixLocalSandboxClient.close = close

def model_or_script(*steps, conversations=()):
    return nullcontext()
"""
STEPS = """
def __getattr__(name):
    return lambda *args, **kwargs: None
"""
_VARYING = re.compile(r"Chunk ID: \w+|Wall time: [\d.]+ seconds|/\S*/workspace\S*")


@contextmanager
def model_of(example: Path) -> Iterator[str]:
    """A server with the script of the example."""
    spec = importlib.util.spec_from_file_location(f"example_{example.stem}", example)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    steps = getattr(module, "SCRIPT", None)
    conversations = getattr(module, "SCRIPTS", ())
    with ScriptedModel(default=steps, conversations=conversations, strict=False) as server:
        yield server.base_url


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def end_what_is_left(folder: Path) -> None:
    """End the processes that have this directory for temporary files."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            if f"TMPDIR={folder}".encode() in environment:
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it has ended, or is somebody else's


def said(python: Path, program: Path, url: str, starts: int) -> list[str]:
    """What the program prints, each time that it is started."""
    folder = program.parent
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "SANDSTREAM_", "NATS_", "PYTHON"))
    }
    environment = kept | {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "sk-comparison",
        "OPENAI_AGENTS_DISABLE_TRACING": "0" if program.stem in TRACED else "1",
        "SANDSTREAM_HOME": str(folder / "home"),
        "TMPDIR": str(folder),
        "PYTHONPATH": str(EXAMPLES) if folder.name == "ours" else "",
    }
    order = Order(str(program), [], environment, directory=str(folder))
    texts = []
    for _ in range(starts):
        done = warm_python.run(order, within_s=100, python=str(python), libraries=LIBRARIES)
        assert done.returncode == 0, f"{python} {program.name}:\n{done.stdout}{done.stderr}"
        texts.append(_VARYING.sub("...", done.stdout))
    return texts


@pytest.mark.parametrize("name", STARTS)
def test_the_peer_runs_the_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = EXAMPLES / f"{name}.py"
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    text = example.read_text().replace("PORT = 8080", f"PORT = {free_port()}")
    (ours / example.name).write_text(text)
    ported = re.sub(r"^from sandstream\.testing\b", "from steps", text, flags=re.MULTILINE)
    ported = re.sub(r"^from sandstream\b", "from agents", ported, flags=re.MULTILINE)
    (theirs / "offline.py").write_text(OFFLINE)
    (theirs / "steps.py").write_text(STEPS)
    (theirs / example.name).write_text(ported)
    starts = STARTS[name]
    with model_of(ours / example.name) as url:
        here = said(Path(sys.executable), ours / example.name, url, starts)
        try:
            there = said(peer_python(), theirs / example.name, url, starts)
        finally:
            end_what_is_left(theirs)
    assert there == here
    assert all(here)
