"""Containers that wait for their boxes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

from providers.docker.docker_boxes import OWNER, docker_provider, inspect, new_spec
from providers.local.local_boxes import said
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.docker.labels import OWNER as OWNER_LABEL
from sandstream_providers.docker.labels import POOL
from support.engines import engine
from support.waiting import until


def _waiting() -> list[str]:
    """The containers that no box has taken. Other processes may have some on the same engine."""
    filters = quote(json.dumps({"label": [POOL, f"{OWNER_LABEL}={OWNER}"]}))
    found = engine.ask(engine.ensure(), f"/containers/json?filters={filters}")
    names = [name for it in found for name in it["Names"]]
    return [name for name in names if name.startswith("/sandstream-pool-")]


def test_a_box_is_taken_from_the_pool(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            options = {"pool": 1}
            first = await provider.create(new_spec(options=options))
            await until(lambda: len(_waiting()) == 1, within_s=30)
            (member,) = _waiting()
            spec = new_spec(options=options, env={"MINE": "yes"}, ports=[8080])
            spec.labels["run"] = "r-1"
            box = await provider.create(spec)
            assert inspect(spec.key)["Config"]["Labels"][POOL] in member, "it was started anew"
            assert await said(box, "echo $MINE > file; cat file; id -u") == "yes\n1000\n"
            assert (await box.port(8080))[0] == "127.0.0.1"
            listed = {it.key: it.labels for it in await provider.list_owned(OWNER)}
            assert listed[spec.key] == spec.labels
            await _lives_on(tmp_path, provider, spec.key)
            assert await said(first, "ls") == ""
            await provider.delete(spec.key)
            assert not [it for it in (tmp_path / "docker").iterdir() if it.is_symlink()]
        assert _waiting() == [], "a process that ends removes what nobody has taken"

    asyncio.run(story())


def test_members_that_died_or_were_left(tmp_path: Path) -> None:
    """A process that is killed leaves its members: others know whose they are. One that has died is
    no box; the next box is started as usual.
    """

    async def story() -> None:
        options = {"pool": 1}
        async with docker_provider(tmp_path) as provider:
            await provider.create(new_spec(options=options))
            await until(lambda: len(_waiting()) == 1, within_s=30)
            (member,) = _waiting()
            key = member.removeprefix("/sandstream-")
            async with docker_provider(tmp_path / "other", owner="nobody") as other:
                (left,) = [it for it in await other.list_owned(OWNER) if it.key == key]
                assert left.labels == {"owner": OWNER}, "it belongs to no sandbox"
                await other.delete(key)
            spec = new_spec(options=options)
            box = await provider.create(spec)
            assert POOL not in inspect(spec.key)["Config"]["Labels"]
            assert await said(box, "echo fine") == "fine\n"

    asyncio.run(story())


async def _lives_on(home: Path, provider: AgentProvider, key: str) -> None:
    """It is a box like any other: stopped, started again, and found by others."""
    await provider.stop(key)
    again = await provider.get(key)
    assert again is not None
    assert await said(again, "cat file; echo $MINE") == "yes\nyes\n"
    async with docker_provider(home / ".." / home.name, owner="nobody") as other:
        found = await other.get(key)
        assert found is not None
        assert await said(found, "cat file") == "yes\n"
