"""SIGSTOP of a harness, a worker and a sandbox actor, for longer than ``ack_wait``.

The soak (``make cluster-soak``) does the same with 30 s instead of 12.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from chaos import report
from chaos.evidence import Outcome
from pauses.scenes import SCENES

Scene = Callable[[Path], Awaitable[Outcome]]


@pytest.mark.timeout(150)
@pytest.mark.parametrize("scene", SCENES)
def test_a_sleeper_changes_nothing_when_it_wakes_up(scene: Scene, tmp_path: Path) -> None:
    async def main() -> Outcome:
        return await scene(tmp_path / "fleet")

    outcome = asyncio.run(main())
    report.write(outcome.name, [outcome])
    sys.stderr.write("\n" + "\n".join(report.lines({outcome.name: report.read()[outcome.name]})))
    assert not outcome.problems, "\n".join([outcome.name, *outcome.problems])
