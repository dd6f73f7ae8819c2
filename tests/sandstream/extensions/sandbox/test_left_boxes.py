"""Boxes at a vendor that a program left behind: it ended without closing them, or was killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sandstream_actors.sandbox.actor import SandboxActor
from support.vendor_side import VendorSide
from support.waiting import until

from sandstream._run.sandbox_host import make_provider
from sandstream.client import Client

TESTS = Path(__file__).parents[3]
PROGRAM = """
import asyncio, sys
from pathlib import Path
from support.vendor_side import VendorSide

async def main():
    name, saved, way = sys.argv[1:]
    side = VendorSide(name, None, frozenset())
    options = side.options(pause_on_exit=way == "keep")
    session = await side.client().create(manifest=side.manifest(), options=options)
    Path(saved).write_text(session.state.model_dump_json())
    await session.start()
    assert (await session.exec("echo mine > file")).ok()
    if way == "busy":
        await session.pty_exec_start("sleep", "1000", shell=False)
    print("ready", flush=True)
    if way == "hang":
        await asyncio.sleep(1000)

asyncio.run(main())
"""


@contextmanager
def program(vendor: VendorSide, saved: Path, way: str) -> Iterator[subprocess.Popen[str]]:
    """A program with a box. ``way``: what it does then."""
    env = os.environ | {"PYTHONPATH": str(TESTS)}
    arguments = [sys.executable, "-c", PROGRAM, vendor.name, str(saved), way]
    with subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def run_program(vendor: VendorSide, saved: Path, way: str) -> None:
    with program(vendor, saved, way) as process:
        assert process.wait(60) == 0


def kill_program(vendor: VendorSide, saved: Path) -> None:
    with program(vendor, saved, "hang") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandstream.cli", "sandboxes", *arguments]
    env = os.environ | {"COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done


def listed(box_id: str) -> dict[str, Any]:
    found = [json.loads(line) for line in command_line("ls", "--json").stdout.splitlines()]
    shown: list[dict[str, Any]] = [it for it in found if it.get("box_id") == box_id]
    assert len(shown) == 1
    return shown[0]


def resumed(vendor: VendorSide, saved: Path) -> tuple[bool, str]:
    """Whether the resumed session has the box that it had, and the file. The box is gone then."""

    state = vendor.state_class.model_validate_json(saved.read_text())

    async def main() -> tuple[bool, str]:
        async with vendor.client() as client:
            before = state.sandbox_id
            session = await client.resume(state)
            try:
                async with session:
                    done = await session.exec("cat file")
                return session.state.sandbox_id == before, done.stdout.decode()
            finally:
                await client.delete(session)

    return asyncio.run(main())


def test_a_program_that_ends_without_closing_its_session(
    vendor: VendorSide, tmp_path: Path
) -> None:
    """Its box is stopped: it costs nothing from then on, and is there for ``resume``."""
    saved = tmp_path / "state"
    run_program(vendor, saved, "end")
    (box,) = vendor.boxes()
    assert vendor.is_paused(box.id)
    assert resumed(vendor, saved) == (True, "mine\n")


def test_a_program_that_ends_while_a_command_runs(vendor: VendorSide, tmp_path: Path) -> None:
    """The command goes on, until the vendor's limit or the reaper ends it."""
    saved = tmp_path / "state"
    run_program(vendor, saved, "busy")
    (box,) = vendor.boxes()
    assert not vendor.is_paused(box.id)
    command_line("reap", "--yes")
    assert vendor.boxes() == []
    assert resumed(vendor, saved) == (False, "mine\n")


def test_a_box_that_is_to_be_kept_is_not_removed(vendor: VendorSide, tmp_path: Path) -> None:
    saved = tmp_path / "state"
    run_program(vendor, saved, "keep")
    command_line("reap", "--yes")
    (box,) = vendor.boxes()
    assert vendor.is_paused(box.id)
    assert "it is kept for a later session" in command_line("reap").stdout
    assert resumed(vendor, saved) == (True, "mine\n")


def test_the_box_of_a_killed_program_is_reaped(vendor: VendorSide, tmp_path: Path) -> None:
    """No actor of the provider runs: the command asks the vendor itself."""
    saved = tmp_path / "state"
    kill_program(vendor, saved)
    (box,) = vendor.boxes()
    found = json.loads(command_line("reap", "--json").stdout)
    assert (found["do"], found["why"]) == ("close", "its program is gone")
    assert (found["provider"], found["state"], found["box_id"]) == (vendor.name, "running", box.id)
    assert [it.id for it in vendor.boxes()] == [box.id], "it only looked"
    command_line("reap", "--yes")
    assert vendor.boxes() == []
    assert resumed(vendor, saved) == (False, "mine\n")


def test_the_box_of_a_killed_program_is_reaped_by_an_actor(
    vendor: VendorSide, tmp_path: Path
) -> None:
    saved = tmp_path / "state"
    kill_program(vendor, saved)

    async def main() -> None:
        async with await Client.connect() as client:
            actor = SandboxActor(
                client.bus,
                make_provider(vendor.name, tmp_path),
                node="shared",
                reap_every_s=0.2,
                owns_boxes=False,
            )
            await actor.start()
            try:
                await until(lambda: not vendor.boxes(), within_s=60)
            finally:
                await actor.stop()

    asyncio.run(main())
    assert resumed(vendor, saved) == (False, "mine\n")


def test_the_list_shows_what_the_vendor_has(vendor: VendorSide, tmp_path: Path) -> None:
    saved = tmp_path / "state"
    run_program(vendor, saved, "end")
    (box,) = vendor.boxes()
    shown = listed(box.id)
    asleep = "stopped" if vendor.name == "daytona" else "paused"
    assert (shown["box_id"], shown["box_state"]) == (box.id, asleep)
    assert shown["box_since"]
    assert asleep in command_line("ls").stdout
    vendor.server.delete(box.id)
    assert listed(box.id)["box_state"] == "gone"


def test_a_vendor_that_cannot_be_asked(vendor: VendorSide, monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"daytona": "DAYTONA_API_KEY", "e2b": "E2B_API_KEY"}[vendor.name]
    monkeypatch.setenv(key, "wrong")
    for action in ("reap", "ls"):
        said = command_line(action).stderr
        assert f"boxes of {vendor.name} were not looked for: " in said
        assert key in said
