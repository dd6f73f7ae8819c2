"""No example leaves anything behind that is stopped in the middle: by Ctrl-C, by a signal, killed.

The examples of one test run side by side, since they spend most of the time waiting. A box that a
killed program left ends after a grace, which is short here. That programs which end by themselves
leave nothing is tested where they are run.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from examples.test_examples import ALONE, EXAMPLES, FOREIGN
from support.processes import warm_python
from support.processes.leftovers import (
    STATE,
    find,
    homes_below,
    wait_until_none,
    watched_environment,
)
from support.processes.warm_server import Order

PROGRAMS: Final = [
    "demo.py",
    *ALONE,
    "03_survive_a_crash.py",
    "13_pause_and_resume.py",
    "17_approvals.py",
]
AT_ONCE: Final = 6
START_S: Final = 60.0
END_S: Final = 30.0
WITH_FILES: Final = {
    "03_survive_a_crash.py": "sandstream-ledger-",
    "13_pause_and_resume.py": "sandstream-diary.",
    "17_approvals.py": "sandstream-approval.json",
}
"""What these keep in TMPDIR for their second start."""


class Example:
    """One program in a directory of its own."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        root.mkdir()
        foreign = (*FOREIGN, "PYTHON")
        kept = {key: it for key, it in os.environ.items() if not key.startswith(foreign)}
        env = kept | watched_environment(root) | {"SANDSTREAM_SANDBOX_GRACE_S": "1"}
        order = Order(str(EXAMPLES / name), [], env, str(root), own_session=True)
        self._output = root.parent / f"{name}.said"
        with self._output.open("wb") as said:
            self.process = warm_python.start(order, None, said.fileno(), said.fileno())

    def wait_for_work(self) -> None:
        """Until it has a box; one without sandboxes, until its server is there."""
        server = self.root / STATE / "server.json"
        has_boxes = "sandbox" in (EXAMPLES / self.name).read_text()
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._has_box() if has_boxes else server.exists():
                return
            assert self.process.poll() is None, f"{self.name} did nothing: {self._said()}"
            time.sleep(0.01)
        raise AssertionError(f"{self.name} does not begin: {self._said()}")

    def _has_box(self) -> bool:
        return any(any(home.glob("sandboxes/*/box.json")) for home in homes_below(self.root))

    def _said(self) -> str:
        return self._output.read_text()

    def left(self, *, files: bool) -> list[str]:
        """What is left a while after its end."""
        found = wait_until_none(self.root, within_s=END_S, files=False)
        if files:
            found += find(self.root)
        kept = WITH_FILES.get(self.name)
        return [f"{self.name}: {it}" for it in found if kept is None or kept not in it]


def all_left(tmp_path: Path, how: signal.Signals) -> list[str]:
    def one(name: str) -> list[str]:
        example = Example(name, tmp_path / name[:2])
        try:
            example.wait_for_work()
            time.sleep(0.2 * (PROGRAMS.index(name) % 3))  # only to hit different moments
            example.process.send_signal(how)
            assert example.process.wait(START_S) is not None, f"{name} does not end"
            # A program that was killed cannot remove its temporary files.
            return example.left(files=how == signal.SIGINT)
        finally:
            example.process.kill()
            example.process.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [line for found in pool.map(one, PROGRAMS) for line in found]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_examples_leave_nothing_behind(tmp_path: Path, how: signal.Signals) -> None:
    assert all_left(tmp_path, how) == []
