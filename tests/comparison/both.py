"""Runs programs on both SDKs and compares what was seen.

Each SDK runs its programs in one process of its own, against a scripted model of its own. What is
compared: the requests on the wire, new items, stream events, final outputs, errors and usage.
`*differences.py` list what may differ.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comparison import (
    agent_tool_differences,
    composition_differences,
    sandbox_differences,
    tracing_differences,
)
from comparison import differences as table
from comparison.differences import differences, normalised, told
from comparison.peer import peer_python
from comparison.program import PROGRAMS
from comparison.sandbox_reports import without_own_words
from sandstream import testing
from sandstream.testing import Request, Script, read_journal, script_for

EXPECTED = (
    *table.EXPECTED,
    *sandbox_differences.EXPECTED,
    *agent_tool_differences.EXPECTED,
    *composition_differences.EXPECTED,
    *tracing_differences.EXPECTED,
)
TESTS = Path(__file__).resolve().parents[1]
_SENT_HEADERS = ("x-test-header", "accept", "content-type")
Reports = dict[str, dict[str, Any]]
"""SDK -> program -> what was seen of it."""


def observe_both(folder: Path, names: Sequence[str]) -> Reports:
    """What each SDK did in these programs."""
    interpreters = {"agents": peer_python(), "sandstream": Path(sys.executable)}
    script = Script(
        conversations=tuple(
            script_for(f"<{name}>", PROGRAMS[name].script(testing), name=name) for name in names
        )
    )
    (folder / "script.json").write_bytes(script.to_json())
    with scripted_model(folder, "agents") as theirs, scripted_model(folder, "sandstream") as ours:
        urls = {"agents": theirs, "sandstream": ours}
        drivers = {
            sdk: start_driver(python, sdk, urls[sdk], folder, names)
            for sdk, python in interpreters.items()
        }
        for sdk, driver in drivers.items():
            output, _ = driver.communicate(timeout=540)
            assert driver.returncode == 0, f"the {sdk} driver failed:\n{output}"
    return {sdk: read_reports(folder, sdk) for sdk in interpreters}


@contextmanager
def scripted_model(folder: Path, sdk: str) -> Iterator[str]:
    ready = folder / f"{sdk}.ready"
    arguments = {"script": folder / "script.json", "journal": folder / f"{sdk}.journal"}
    options = [f"--{name}={value}" for name, value in arguments.items()]
    command = [sys.executable, "-m", "sandstream.testing.server", *options, f"--ready-file={ready}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 20
            while not ready.exists():
                assert server.poll() is None and time.monotonic() < until
                time.sleep(0.01)
            yield ready.read_text()
        finally:
            server.send_signal(signal.SIGTERM)


def start_driver(
    python: Path, sdk: str, url: str, folder: Path, names: Sequence[str]
) -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "SANDSTREAM_", "NATS_", "PYTHON"))
    }
    environment |= {
        "PYTHONPATH": str(TESTS),
        "SANDSTREAM_HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
        "COMPARISON_SECRET": "of the host",
    }
    home = folder / f"{sdk}-files"
    home.mkdir()
    options = [f"--base-url={url}", f"--out={folder / sdk}.json"]
    return subprocess.Popen(
        [str(python), "-m", "comparison.driver", *options, sdk, *names],
        env=environment,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_reports(folder: Path, sdk: str) -> dict[str, Any]:
    reports: dict[str, Any] = json.loads((folder / f"{sdk}.json").read_text())
    for report in reports.values():
        report["requests"] = []
    for request in read_journal(folder / f"{sdk}.journal"):
        name = request.conversation or next(
            (name for name in PROGRAMS if f"<{name}>" in request.text), None
        )
        assert name is not None, f"a request of {sdk} belongs to no program: {request}"
        reports[name]["requests"].append(sent(request))
    for name, report in reports.items():
        if PROGRAMS[name].has_sandbox:
            reports[name] = without_own_words(report, str(folder / f"{sdk}-files"))
    return {name: normalised(report) for name, report in reports.items()}


def sent(request: Request) -> dict[str, Any]:
    headers = {name: request.headers.get(name) for name in _SENT_HEADERS}
    return {
        "path": request.path,
        "headers": headers,
        "body": request.body,
        "answered": request.step,
        "refused": request.problem,
    }


def check(name: str, reports: Reports) -> None:
    """A program is the same on both, except for what the tables say."""
    found = differences(reports["agents"][name], reports["sandstream"][name])
    unexpected = {
        path: values
        for path, values in found.items()
        if not any(row.covers(name, path) for row in EXPECTED)
    }
    assert not unexpected, f"{name} differs:\n{told(unexpected)}"
    for row in EXPECTED:
        gone = row.gone(name, found)
        assert not gone, f"{name} no longer differs at {gone} ({row.reason}): change the table"
