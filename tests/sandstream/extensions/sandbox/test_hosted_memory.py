"""Memory across sessions whose sandboxes are at a vendor, with snapshots on this machine."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from support.memory_model import consolidation, extraction, is_phase
from support.vendor_side import VendorSide, run_command

from sandstream import Runner
from sandstream.run import RunConfig
from sandstream.sandbox import LocalSnapshotSpec, SandboxAgent, SandboxRunConfig, wait_for_memory
from sandstream.sandbox.capabilities import ApplyPatch, Memory, Shell
from sandstream.sandbox.entries import File
from sandstream.testing import ScriptedModel, text

LESSON = "Lesson: the user likes minimal patches."
MENDED = "sed -i 's:/ 10:/ 100:' prices.py; cat prices.py"


def test_the_second_session_knows_what_the_first_one_learned(
    vendor: VendorSide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDSTREAM_PREFIX", f"memory-{uuid.uuid4().hex[:12]}")
    snapshots = tmp_path / "snapshots"
    manifest = vendor.manifest(**{"prices.py": File(content=b"off = 3 / 10\n")})

    async def program(model: ScriptedModel) -> None:
        agent = SandboxAgent(
            name="Coder",
            model="gpt-5.4",
            instructions="Work in the workspace.",
            default_manifest=manifest,
            capabilities=[Shell(), ApplyPatch(), Memory()],
        )
        client = vendor.client()
        snapshot = LocalSnapshotSpec(base_path=snapshots)
        if vendor.name == "daytona":
            session = await client.create(manifest=manifest, snapshot=snapshot)
        else:
            session = await client.create(
                manifest=manifest, snapshot=snapshot, options=vendor.options()
            )
        async with session:
            run_config = RunConfig(sandbox=SandboxRunConfig(session=session))
            first = await Runner.run(agent, "Mend it, minimally.", run_config=run_config)
        await wait_for_memory(first)

        resumed = await client.resume(session.state)
        async with resumed:
            run_config = RunConfig(sandbox=SandboxRunConfig(session=resumed))
            second = await Runner.run(agent, "Add a test.", run_config=run_config)
            assert (await resumed.read("prices.py")).read() == b"off = 3 / 100\n"
            summary = (await resumed.read("memories/memory_summary.md")).read().decode()
        await wait_for_memory(second)
        await client.close()
        assert LESSON in summary
        turns = [it for it in model.journal if not is_phase(it)]
        assert LESSON not in str(turns[0].body["instructions"])
        assert LESSON in str(turns[-1].body["instructions"])

    async def main() -> None:
        steps = [
            run_command(MENDED).when(lambda it: "minimally" in it.text and not is_phase(it)),
            extraction("patches", LESSON),
            *consolidation(),
            text("ok").when(lambda it: not is_phase(it)).forever(),
        ]
        async with ScriptedModel(steps, strict=False) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            await program(model)

    since = len(vendor.server.journal())
    asyncio.run(main())
    assert vendor.created(since) == 2, "for the sessions, and none for the consolidation"
    assert [it.suffix for it in snapshots.iterdir()] == [".tar"]
