"""Landlock around a box, made by root and made by an ordinary user."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from providers.local.local_boxes import local_provider, new_spec, said
from providers.local.starters import STARTERS, run_as
from sandstream_providers.box.agent import landlock

ABI = landlock.abi()


@pytest.mark.parametrize("starter", STARTERS)
def test_the_check_says_whether_it_is_on(starter: str) -> None:
    done = run_as(starter, "trials.py", "checked")
    assert done.returncode == 0, done.stderr
    expected = f"on (version {ABI})" if ABI >= landlock.LEAST_ABI else "off ("
    assert json.loads(done.stdout)["landlock"].startswith(expected)


@pytest.mark.skipif(ABI < landlock.SCOPES_ABI, reason="this kernel's Landlock has no scopes")
@pytest.mark.parametrize("starter", STARTERS)
def test_abstract_sockets_of_the_host_are_out_of_reach(starter: str) -> None:
    done = run_as(starter, "trials.py", "abstract_sockets")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["connected", "Operation not permitted"]


def test_a_box_works_without_it(tmp_path: Path) -> None:
    """On a kernel that has none, or one that is too old."""

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            for version in (0, 1):
                await provider.check()
                assert provider.host.machine is not None
                provider.host.machine = msgspec.structs.replace(
                    provider.host.machine, landlock=version
                )
                assert (await provider.check())["landlock"].startswith("off (")
                box = await provider.create(new_spec())
                assert await said(box, "echo fine > file && cat file") == "fine\n"

    asyncio.run(main())
