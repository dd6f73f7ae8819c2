"""The disk of the engine is full: a typed error for each caller, nothing is lost, and all goes on
when there is space again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.stage import Place, new_op, place_in
from providers.docker.docker_boxes import docker_provider, new_spec
from providers.local.local_boxes import said
from sandstream_providers.docker.errors import EngineFull
from sandstream_providers.interface import Box, FileWrite, NoSpace, Provider
from support.engines import engine
from support.engines.own_engine import OwnEngine

DISK_MB = 220
"""The images of the tests take 120."""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "agent": (engine.PYTHON, {}),
    "dash": (engine.PYTHON, {"agents": False}),
    "busybox": (engine.BUSYBOX, {}),
}


@pytest.fixture(scope="module")
def small() -> Iterator[OwnEngine]:
    made = OwnEngine(live_restore=False, disk_mb=DISK_MB)
    try:
        asyncio.run(made.make())
        yield made
    finally:
        asyncio.run(made.end())


async def _works_again(provider: Provider, key: str) -> Box:
    box = await provider.get(key)
    assert box is not None
    assert await said(box, "echo more >> file; cat file") == "mine\nmore\n"
    return box


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
def test_the_disk_of_the_engine_is_full(tmp_path: Path, small: OwnEngine, kind: str) -> None:
    image, settings = KINDS[kind]

    async def story() -> None:
        async with docker_provider(tmp_path, url=small.url, **settings) as provider:
            stopped, running, new = (new_spec(image) for _ in range(3))
            await said(await provider.create(stopped), "echo mine > file")
            await provider.stop(stopped.key)
            place = await place_in(await provider.create(running))
            await place.write("kept", b"kept")
            await place.said("echo mine > ../file; head -c 3000000 /dev/zero > big")
            before = await place.tree()

            small.fill_disk()
            await _changes_are_refused(place)
            for again in range(2):
                with pytest.raises(EngineFull) as caught:
                    await provider.create(new)
                assert caught.value.code == "no_space", again
                assert "docker system prune" in str(caught.value)
                with pytest.raises(EngineFull, match="did not start again"):
                    await provider.get(stopped.key)
            assert {it.key for it in await provider.list_owned(new.labels["owner"])} == {
                stopped.key,
                running.key,
            }, "of the box that was not made nothing is left"
            # the sandbox itself can make room
            await place.box.remove(new_op(), place.at("big"), place.rule)
            # a tree that is laid out may be left in the middle
            now = [it for it in await place.tree() if "./new" not in it]
            assert now == [it for it in before if "./big" not in it]
            small.fill_disk()
            await provider.stop(running.key)
            with pytest.raises(EngineFull):
                await provider.get(running.key)

            small.free_disk()
            for spec in (stopped, running):
                await _works_again(provider, spec.key)
            assert await said(await provider.create(new), "echo fine") == "fine\n"
        assert await small.containers() == []

    try:
        asyncio.run(story())
    finally:
        small.free_disk()


async def _changes_are_refused(place: Place) -> None:
    with pytest.raises(NoSpace):
        await place.write("more", b"x" * 500_000)
    with pytest.raises(NoSpace):
        await place.change(
            FileWrite(path=place.at("kept"), data=b"changed" * 10_000),
            FileWrite(path=place.at("more"), data=b"x" * 500_000),
        )
    with pytest.raises(NoSpace):
        await place.box.append(new_op(), place.at("kept"), b"x" * 500_000, place.rule, at=4)
    with pytest.raises(NoSpace):
        new = FileWrite(path=place.at("new"), data=b"x" * 500_000)
        await place.box.fill(new_op(), [new], place.rule)
    assert await place.read("kept") == b"kept"
