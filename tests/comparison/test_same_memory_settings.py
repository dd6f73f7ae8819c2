"""The settings of memories mean, and are refused, the same as in the peer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from comparison.memory_settings import SETTINGS, outcomes
from comparison.peer import peer_python

pytestmark = pytest.mark.timeout(600)  # the first run installs the peer

TESTS = Path(__file__).resolve().parents[1]


def test_settings_of_memories() -> None:
    done = subprocess.run(
        [str(peer_python()), "-m", "comparison.memory_settings", "agents"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(done.stdout)
    assert outcomes("sandstream") == theirs
    assert set(theirs) == set(SETTINGS)
    refused = [title for title, outcome in theirs.items() if outcome in ("TypeError", "ValueError")]
    assert len(refused) == 9
