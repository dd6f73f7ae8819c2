"""A sandbox at a vendor that waits between two programs: a state file, a pause, a replacement."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.vendor_side import VendorSide, outputs, run_command

from sandstream import Runner
from sandstream.run import RunConfig
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.entries import File
from sandstream.testing import ScriptedModel, text


def save(session: Any, state_file: Path) -> None:
    state_file.write_text(session.state.model_dump_json(indent=2))


def saved_state(vendor: VendorSide, state_file: Path) -> Any:
    return vendor.state_class.model_validate_json(state_file.read_text())


def visit(vendor: VendorSide, state_file: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The program: it adds a line to a file of its sandbox, and pauses it. It returns how it got
    the sandbox, and what its command said.
    """

    saved = saved_state(vendor, state_file) if state_file.exists() else None

    async def program() -> tuple[str, str]:
        client = vendor.client()
        options = vendor.options(pause_on_exit=True)
        session: Any = None
        how = "new"
        if saved is not None:
            old_sandbox_id = saved.sandbox_id
            session = await client.resume(saved)
            is_same = session.state.sandbox_id == old_sandbox_id
            how = "reconnected" if is_same else "replaced"
        if session is None:
            manifest = vendor.manifest(**{"visits.txt": File(content=b"made\n")})
            session = await client.create(manifest=manifest, options=options)
        save(session, state_file)
        agent = SandboxAgent(name="Clerk", instructions="Note it.", capabilities=[Shell()])
        steps = [run_command("echo visit >> visits.txt; cat visits.txt"), text("Noted.")]
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            result = await Runner.run(
                agent,
                "Note my visit.",
                run_config=RunConfig(sandbox=SandboxRunConfig(session=session)),
            )
        await session.aclose()
        await client.close()
        return how, outputs(result)[0].partition("Output:\n")[2]

    return asyncio.run(program())


@pytest.fixture
def state_file(vendor: VendorSide, tmp_path: Path) -> Any:
    """The sandbox of the state file is removed after the test."""
    path = tmp_path / ".session_state.json"
    yield path

    state = saved_state(vendor, path)

    async def remove() -> None:
        client = vendor.client()
        await client.delete(client.session_of(state))

    asyncio.run(remove())


def box_of(vendor: VendorSide, state_file: Path) -> str:
    """The one box of the vendor, which the state file names and which sleeps."""
    (box,) = vendor.boxes()
    saved = saved_state(vendor, state_file)
    assert saved.sandbox_id == box.id
    assert vendor.is_paused(box.id), box
    return box.id


def test_the_next_program_reconnects(
    vendor: VendorSide, state_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert visit(vendor, state_file, monkeypatch) == ("new", "made\nvisit\n")
    first = box_of(vendor, state_file)
    assert visit(vendor, state_file, monkeypatch) == ("reconnected", "made\nvisit\nvisit\n")
    assert box_of(vendor, state_file) == first


def test_a_box_that_the_vendor_deleted_is_replaced_with_its_files(
    vendor: VendorSide,
    state_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    visit(vendor, state_file, monkeypatch)
    first = box_of(vendor, state_file)
    vendor.server.delete(first)
    assert visit(vendor, state_file, monkeypatch) == ("replaced", "made\nvisit\nvisit\n")
    assert box_of(vendor, state_file) != first
    assert "a sandbox was lost: its box is gone" in caplog.messages


def test_a_box_whose_time_ran_out_asleep(
    vendor: VendorSide, state_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daytona deletes a box that was stopped for long; E2B keeps a paused one."""
    visit(vendor, state_file, monkeypatch)
    first = box_of(vendor, state_file)
    vendor.server.expire(first)
    how = "replaced" if vendor.name == "daytona" else "reconnected"
    assert visit(vendor, state_file, monkeypatch) == (how, "made\nvisit\nvisit\n")
    assert (box_of(vendor, state_file) == first) is (how == "reconnected")


def test_a_box_that_lost_files_asleep_is_replaced(
    vendor: VendorSide, state_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(vendor, state_file, monkeypatch)
    first = box_of(vendor, state_file)
    vendor.server.lose_files(first, share=1.0)
    assert visit(vendor, state_file, monkeypatch) == ("replaced", "made\nvisit\nvisit\n")
    assert box_of(vendor, state_file) != first


def test_a_state_that_was_saved_at_once_finds_the_box_after_a_crash(
    vendor: VendorSide, state_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crashing() -> None:
        session = await vendor.client().create(
            manifest=vendor.manifest(**{"visits.txt": File(content=b"made\n")}),
            options=vendor.options(pause_on_exit=True),
        )
        save(session, state_file)
        await session.exec("echo early >> visits.txt")  # and the program ends here

    asyncio.run(crashing())
    (box,) = vendor.boxes()
    assert visit(vendor, state_file, monkeypatch) == ("reconnected", "made\nearly\nvisit\n")
    assert box_of(vendor, state_file) == box.id
