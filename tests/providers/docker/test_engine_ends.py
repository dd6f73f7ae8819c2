"""kill -9 of the engine, with and without live-restore; an engine that sees none of our files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from providers.docker.docker_boxes import docker_provider, new_spec
from providers.local.local_boxes import said, sh
from sandstream_providers.docker.errors import EngineSilent
from sandstream_providers.interface import ExecSpec, Limits
from support.engines.own_engine import OwnEngine

WAITS = ExecSpec(argv=["sh", "-c", "echo once >> ran; sleep 60"], cwd="/workspace")


@pytest.mark.timeout(120)
def test_kill_9_of_the_engine(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            OwnEngine(live_restore=True) as own,
            docker_provider(tmp_path, url=own.url) as provider,
        ):
            spec = new_spec()
            box = await provider.create(spec)
            await said(box, "echo mine > file")
            await box.run("long", WAITS, wait_s=0)
            for live_restore, state in ((True, "running"), (False, "lost")):
                await own.kill()
                # the agent does not need the engine: commands go on
                assert await said(box, "cat file ran") == "mine\nonce\n"
                with pytest.raises(EngineSilent):
                    await provider.get(spec.key)
                own.live_restore = live_restore
                await own.up()
                again = await provider.get(spec.key)
                assert again is not None
                assert (await again.run("long", WAITS, wait_s=0)).state == state
                assert await said(again, "cat file ran") == "mine\nonce\n"

    asyncio.run(story())


@pytest.mark.timeout(120)
def test_an_engine_that_sees_none_of_our_files(tmp_path: Path) -> None:
    """As on another machine: the agent is copied, and reached by executions. This one keeps its
    images in containerd, so it accepts limits of the disk and does not keep them.
    """

    async def story() -> None:
        async with (
            OwnEngine(live_restore=False, hides=tmp_path, containerd_images=True) as own,
            docker_provider(tmp_path, url=own.url) as provider,
        ):
            spec = new_spec(env={"MINE": "ü"})
            box = await provider.create(spec)
            assert (await provider.check())["link"] == "exec stream"
            assert await said(box, "echo $MINE > file; cat file") == "ü\n"
            assert (await sh(box, "head -c 3000000 /dev/zero")).stdout == bytes(3_000_000)
            await provider.stop(spec.key)
            again = await provider.get(spec.key)
            assert again is not None
            assert await said(again, "cat file") == "ü\n"
            limited = await provider.create(new_spec(limits=Limits(disk_mb=8)))
            assert (await sh(limited, "head -c 9000000 /dev/zero > big")).exit_code != 0

    asyncio.run(story())
