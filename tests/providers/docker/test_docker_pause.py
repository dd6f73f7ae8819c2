"""Boxes that cannot be paused or woken at once: the kernel, or the engine, is not ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from providers.docker.docker_boxes import OWNER, docker_provider, new_spec
from sandstream_providers.interface import ExecSpec, Grant
from support.engines import engine
from support.engines.mistaken_engine import MistakenEngine
from support.engines.own_engine import OwnEngine
from support.held_folder import HeldFolder
from support.waiting import until

SAYS = ExecSpec(argv=["echo", "awake"], cwd="/workspace")
LOOKS = ExecSpec(argv=["stat", "-c", "%F", "/held"], cwd="/workspace")


@pytest.mark.timeout(180)
def test_a_pause_is_tried_again_until_the_kernel_can(tmp_path: Path) -> None:
    async def story(held: HeldFolder) -> None:
        async with (
            OwnEngine(live_restore=False) as own,
            docker_provider(tmp_path / "home", url=own.url) as provider,
        ):
            spec = new_spec(grants=[Grant(path="/held", host_path=str(held.path))])
            box = await provider.create(spec)
            held.hold()
            await box.run("looks", LOOKS, wait_s=0)
            await asyncio.to_thread(held.asked.wait)
            pausing = asyncio.create_task(provider.pause(spec.key))
            await until(
                lambda: own.log().count("/pause returned error") >= 2,
                within_s=60,
                what="two refusals",
            )
            assert not pausing.done()
            held.release()
            await pausing
            (info,) = await provider.list_owned(OWNER)
            assert info.state == "paused"
            await provider.resume(spec.key)
            assert (await box.run("looks", LOOKS)).stdout == b"directory\n"

    with HeldFolder(tmp_path / "held") as held:
        asyncio.run(story(held))


@pytest.mark.timeout(180)
def test_a_box_wakes_up_although_its_engine_believes_that_it_runs(tmp_path: Path) -> None:
    """On a busy machine an engine hears of the last resumption after the next pause, once in some
    hundred pauses. Until it hears of that pause too, it refuses to resume the container.
    """

    async def story() -> None:
        async with (
            MistakenEngine(tmp_path / "docker.sock", engine.ensure(), times=3) as mistaken,
            docker_provider(tmp_path / "home", url=mistaken.url) as provider,
        ):
            spec = new_spec()
            box = await provider.create(spec)
            await provider.pause(spec.key)
            await provider.resume(spec.key)
            assert mistaken.refusals == 3
            async with asyncio.timeout(30):
                assert (await box.run("says", SAYS)).stdout == b"awake\n"

    asyncio.run(story())


def test_a_box_that_is_awake_stays_awake(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path / "home") as provider:
            spec = new_spec()
            box = await provider.create(spec)
            for _ in range(2):
                await provider.resume(spec.key)
                (info,) = await provider.list_owned(OWNER)
                assert info.state == "running"
                assert (await box.run(f"says-{_}", SAYS)).stdout == b"awake\n"
            for _ in range(2):
                await provider.pause(spec.key)
                (info,) = await provider.list_owned(OWNER)
                assert info.state == "paused"

    asyncio.run(story())
