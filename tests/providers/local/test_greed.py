"""Limits of memory and time against commands that detach themselves or hide what they hold, in
boxes made by root (control groups) and made by an ordinary user (the agent's watch).
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers.local.starters import STARTERS, UIDS, run_as
from sandstream_providers.local.cgroups import mounts

MEMORY_MB = 256
ROOM_MB = 60
"""What the interpreters of the trial itself take, some of it counted twice."""
WAYS = ["processes", "memfd", "shared", "segments", "directories"]


HIERARCHY = next(
    (
        mount
        for mount, kind, options in mounts()
        if kind == "cgroup" and "memory" in options and os.access(mount, os.W_OK)
    ),
    None,
)
"""Of version 1: anybody may enter a group there that belongs to them, wherever they come from."""


@pytest.fixture(scope="module")
def handed_over() -> Iterator[Path]:
    """A control group for memory that belongs to the ordinary user."""
    if os.geteuid() != 0 or HIERARCHY is None:
        pytest.skip("only root can hand over a control group of version 1")
    uid = UIDS["other user"]
    group = HIERARCHY / f"sandstream-{uid}"
    group.mkdir(exist_ok=True)
    for path in [group, *group.iterdir()]:
        os.chown(path, uid, uid)
    yield group
    group.rmdir()


@functools.cache
def tried(starter: str, *trial: str) -> dict[str, Any]:
    done = run_as(starter, "trials.py", *trial, needs=("greedy.py",))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("way", WAYS)
def test_all_memory_counts(way: str, starter: str) -> None:
    found = tried(starter, "greed", way)
    assert 0 <= found["held_mb"] <= MEMORY_MB + ROOM_MB, found


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("way", WAYS)
def test_others_and_the_agent_live_on(way: str, starter: str) -> None:
    found = tried(starter, "greed", way)
    assert found["bystander"] == "running", found
    assert found["same_agent"], found
    assert found["again"] == str(40 << 20), found


@pytest.mark.parametrize("starter", STARTERS)
def test_a_full_directory_is_an_error_of_the_write(starter: str) -> None:
    found = tried(starter, "greed", "directories")
    size_mb, why = found["said"].split(" ", 1)
    assert why == "No space left on device\n", found
    assert 64 < int(size_mb) <= MEMORY_MB // 2, found
    assert (found["exit_code"], found["killed"]) == (0, ""), found


@pytest.mark.parametrize("starter", STARTERS)
def test_a_time_limit_ends_what_has_detached_itself(starter: str) -> None:
    found = tried(starter, "time_limit")
    assert found == {"killed": ["timeout", "timeout", ""], "left": 0, "kept": 1}


def test_an_ordinary_user_uses_a_group_that_was_handed_over(handed_over: Path) -> None:
    assert tried("other user", "checked")["memory"] == "cgroup v1"
    for way in ("processes", "memfd"):
        found = tried("other user", "greed", way)
        assert 0 <= found["held_mb"] <= MEMORY_MB + ROOM_MB, found
        assert (found["bystander"], found["same_agent"]) == ("running", True), found
        assert found["again"] == str(40 << 20), found
    assert [path for path in handed_over.iterdir() if path.is_dir()] == [], "all groups are gone"
