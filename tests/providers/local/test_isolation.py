"""Trying to get out of a box, made by root and made by an ordinary user. All must be refused."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
from typing import Any

import pytest
from providers.local.starters import HERE, STARTERS, run_as

TOOLS = {"called", "read", "write", "must_be_new", "helpers_of_the_agent", "main"}
ATTEMPTS = [
    node.name
    for node in ast.parse((HERE / "attacks.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name not in TOOLS
]
HARMLESS = [
    "read_a_secret_in_the_home_of_the_provider",
    "read_the_workspace_of_another_box",
    "list_the_home_of_the_provider",
    "see_processes_of_the_host",
    "connect_to_a_port_of_the_host",
    "connect_to_an_abstract_socket_of_the_host",
    "connect_to_the_socket_of_the_agent",
    "signal_processes_of_the_host",
]
"""Attempts that succeed without isolation and break nothing: they show that the others can."""


def siege(starter: str, isolation: str = "required") -> dict[str, Any]:
    """What came of all attempts in a box that this starter made."""
    done = _done_once(starter, isolation)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["attempts"], result
    return result


@functools.cache
def _done_once(starter: str, isolation: str) -> subprocess.CompletedProcess[str]:
    only = HARMLESS if isolation == "none" else []
    return run_as(starter, "besieged.py", isolation, *only, needs=("attacks.py",))


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_refused(attempt: str, starter: str) -> None:
    assert "refused" in siege(starter)["attempts"][attempt], siege(starter)["attempts"][attempt]


@pytest.mark.parametrize("starter", STARTERS)
def test_the_box_works_after_all_that(starter: str) -> None:
    result = siege(starter)
    assert result["after"] == "still here\n"
    assert "bubblewrap" in result["check"]["isolation"]
    assert result["check"]["seccomp"] == "on"


@pytest.mark.parametrize("attempt", HARMLESS)
def test_the_attempts_succeed_where_there_is_no_isolation(attempt: str) -> None:
    assert "got" in siege("user", "none")["attempts"][attempt]
