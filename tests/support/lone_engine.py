"""An engine for tests that kill it: in a network of its own, beside the one that tests share."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from support import engine

_UP_S = 60.0


class LoneEngine:
    """Made by :func:`lone_engine`."""

    def __init__(self, home: Path, hides: Path | None) -> None:
        self.home = home
        self._hides = "" if hides is None else str(hides)
        self.url = f"unix://{home / 'docker.sock'}"

    def start(self, *flags: str) -> None:
        """``flags``: for dockerd."""
        places = {"ENGINE_HOME": str(self.home), "ENGINE_HIDES": self._hides}
        engine.run_script("up.sh", "--alone", "--", *flags, **places)
        engine.run_script("base_image.sh", DOCKER_HOST=self.url)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        pid = int((self.home / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _UP_S
        while _runs(pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop(self) -> None:
        engine.run_script("down.sh", ENGINE_HOME=str(self.home))


@contextlib.contextmanager
def lone_engine(*flags: str, hides: Path | None = None) -> Iterator[LoneEngine]:
    """``hides``: a directory whose files it does not see. Its data are gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="lone-engine-", dir="/tmp"))
    made = LoneEngine(home, hides)
    try:
        made.start(*flags)
        yield made
    finally:
        made.stop()
        shutil.rmtree(home, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
