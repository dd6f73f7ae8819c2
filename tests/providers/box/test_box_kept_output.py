"""The output of commands that have ended does not fill the host's disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from providers.box.agent_process import running_agent
from sandstream_providers.interface import ExecSpec


def test_old_output_goes_but_what_ran_is_still_known(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_agent(tmp_path, output_bytes=10_000) as agent:
            box = agent.box()
            script = "echo ran >>ran; head -c 10000 /dev/zero"
            spec = ExecSpec(argv=["sh", "-c", script], cwd=box.root)
            for number in range(40):
                done = await box.run(f"op{number}", spec)
                assert len(done.stdout) == 10_000
            kept = sum(it.stat().st_size for it in agent.jobs.glob("*.out"))
            assert kept <= 17 * 10_000  # sixteen, and the one that has just ended
            again = await box.run("op0", spec)
            assert (again.state, again.exit_code, again.stdout) == ("exited", 0, b"")
            newest = await box.run("op39", spec)
            assert len(newest.stdout) == 10_000
            assert (Path(box.root) / "ran").read_text() == "ran\n" * 40

    asyncio.run(run())
