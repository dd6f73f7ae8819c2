"""The examples that say they are portable are: `openai-agents` runs them and they print the same.

Only import lines change: `sandstream` becomes `agents`. The scripts of the model stay ours, in a
server here; what the examples use to make them is replaced by modules that do nothing. The peer's
client has no `close`: it gets one that does nothing, too.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from comparison.peer import peer_python
from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(600)  # the first run installs the peer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STARTS = {
    "11_shell": 1,
    "12_multi_turn": 1,
    "13_pause_and_resume": 2,
    "14_handoffs": 1,
    "15_agents_as_tools": 1,
    "16_custom_capability": 1,
    "17_approvals": 2,
}
"""Example -> how often it is started: those that save something go on with it."""
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


def said(python: Path, program: Path, url: str, folder: Path, starts: int) -> list[str]:
    """What the program prints, each time that it is started."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "SANDSTREAM_", "NATS_", "PYTHON"))
    }
    environment = kept | {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "sk-comparison",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "SANDSTREAM_HOME": str(folder / "home"),
        "TMPDIR": str(folder),
    }
    texts = []
    for _ in range(starts):
        done = subprocess.run(
            [str(python), str(program)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
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
    text = example.read_text()
    ported = re.sub(r"^from sandstream\.testing\b", "from steps", text, flags=re.MULTILINE)
    ported = re.sub(r"^from sandstream\b", "from agents", ported, flags=re.MULTILINE)
    (theirs / "offline.py").write_text(OFFLINE)
    (theirs / "steps.py").write_text(STEPS)
    (theirs / example.name).write_text(ported)
    starts = STARTS[name]
    with model_of(example) as url:
        here = said(Path(sys.executable), example, url, ours, starts)
        there = said(peer_python(), theirs / example.name, url, theirs, starts)
    assert there == here
    assert all(here)
