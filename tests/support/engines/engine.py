"""A real Docker engine for tests: that of DOCKER_HOST if it answers, else one that is started.

All processes of the tests share it. Each that needs it holds a lock until it ends; the last one
takes the engine down. If there can be none, the tests fail with the reason.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import socket
import subprocess
import tempfile
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2] / "engine"
PYTHON, BUSYBOX = "sandstream-test:python", "sandstream-test:busybox"
LABEL = "io.sandstream.key"
_START_S = 300
_held: list[int] = []


class NoEngine(Exception):
    """No Docker engine can be had here, and why."""


@functools.cache
def ensure() -> str:
    """The address of an engine that has the images of the tests. Slow the first time."""
    given = os.environ.get("DOCKER_HOST", "")
    if given != _own_url() and given and answers(given):
        run_script("base_image.sh", DOCKER_HOST=given)
        return given
    _hold()
    starting = os.open(f"{_lock()}.start", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(starting, fcntl.LOCK_EX)
        said = run_script("up.sh")
        url = said.split("DOCKER_HOST=")[1].split()[0]
        run_script("base_image.sh", DOCKER_HOST=url)
    finally:
        os.close(starting)
    return url


def hold() -> None:
    """Keep an engine that others start until :func:`release`."""
    _hold()


def release() -> list[str]:
    """Take the engine down if no process needs it any more. Returns the containers of ours that
    were left then, one line each.
    """
    left: list[str] = []
    while _held:
        held = _held.pop()
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = _boxes_left()
            run_script("down.sh")
        except BlockingIOError:
            pass  # another process of the tests still needs it
        finally:
            os.close(held)
    return left


def _boxes_left() -> list[str]:
    url = _own_url()
    if not answers(url):
        return []
    found = ask(url, f"/containers/json?all=1&filters=%7B%22label%22%3A%5B%22{LABEL}%22%5D%7D")
    return [f"container {' '.join(it['Names'])} ({it['Status']})" for it in found]


def answers(url: str) -> bool:
    try:
        return ask(url, "/_ping") is not None
    except OSError:
        return False


def ask(url: str, path: str, method: str = "GET", timeout_s: float = 10.0) -> Any:
    """One request to an engine, without its library. Returns text that is not JSON as it is."""
    connection = HTTPConnection("engine", timeout=timeout_s)
    if url.startswith("unix://"):
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout_s)
        try:
            connection.sock.connect(url.removeprefix("unix://"))
        except BaseException:
            connection.close()
            raise
    else:
        host, _, port = url.partition("://")[2].rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=timeout_s)
    try:
        connection.request(method, path)
        data = connection.getresponse().read()
    finally:
        connection.close()
    try:
        return json.loads(data or b"null")
    except ValueError:
        return data.decode(errors="replace")


def _hold() -> None:
    if not _held:
        fd = os.open(_lock(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        _held.append(fd)


def _own_url() -> str:
    return f"unix://{_home() / 'docker.sock'}"


def _lock() -> str:
    """Held by all processes that need the engine of this home."""
    return f"{_home()}-{os.getuid()}.lock"


def _home() -> Path:
    return Path(os.environ.get("ENGINE_HOME", "/tmp/sandstream-engine"))


def run_script(script: str, *arguments: str, **environment: str) -> str:
    """Run one of the scripts. Its output goes to a file: the engine must not hold a pipe."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        done = subprocess.run(
            [str(SCRIPTS / script), *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=_START_S,
            check=False,
        )
        out.seek(0)
        err.seek(0)
        if done.returncode != 0:
            why = err.read().decode(errors="replace").strip()[-2000:]
            raise NoEngine(f"the tests need a Docker engine: tests/engine/{script} says: {why}")
        return out.read().decode()
