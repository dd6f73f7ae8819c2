"""The end of a program whose event loop is never closed: `Runner.run_sync` leaves its loop open."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandstream.testing import ScriptedModel, text

pytestmark = pytest.mark.usefixtures("home")

BEGIN = """
import asyncio, atexit, os, sys
from sandstream import Agent, Runner

loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)

def ask():
    print(Runner.run_sync(Agent(name="A", model="gpt-4.1"), "hi").final_output, flush=True)
"""
COUNT = """
atexit.register(lambda: print(len(asyncio.all_tasks(loop)), "tasks are left"))
ask()
print("working" if asyncio.all_tasks(loop) else "idle")
"""
FORK = """
def end():
    print("left alone" if asyncio.all_tasks(loop) else "ended", flush=True)
    os._exit(0)

ask()
if os.fork() == 0:
    atexit.register(end)
    sys.exit()
assert os.wait()[1] == 0
ask()
"""


def played(program: str, *answers: str) -> list[str]:
    """What the program printed. It said nothing else, and succeeded."""
    with ScriptedModel([text(it) for it in answers]) as model:
        done = subprocess.run(
            [sys.executable, "-c", BEGIN + program],
            env=os.environ | {"OPENAI_BASE_URL": model.base_url},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_actors_of_a_program_end_with_it() -> None:
    assert played(COUNT, "hello") == ["hello", "working", "0 tasks are left"]


def test_a_forked_child_ends_nothing_of_its_parent() -> None:
    assert played(FORK, "hello", "again") == ["hello", "left alone", "again"]
