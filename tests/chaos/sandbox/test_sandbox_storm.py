"""Random kills while many runs work in sandboxes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from chaos import report
from chaos.sandbox.storm import sandbox_storm


@pytest.mark.timeout(240)
def test_sandbox_storm(tmp_path: Path) -> None:
    outcome = asyncio.run(sandbox_storm("sandstorm", tmp_path / "fleet", runs=20, seconds=12))
    report.write("sandbox storm", [outcome])
    sys.stderr.write("\n".join(report.lines({"sandbox storm": report.read()["sandbox storm"]})))
    assert outcome.problems == []
    assert outcome.kills > 0
