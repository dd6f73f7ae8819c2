"""Boxes that work are kept alive, each by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from contract.toy.sandstream_toy.host import ToyHost
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.interface import BoxSpec, ExecSpec
from support.waiting import eventually

pytestmark = [pytest.mark.needs_process, pytest.mark.timeout(60)]


class SlowHost(ToyHost):
    """A vendor that never answers about one of the boxes."""

    keep_alive_s = 0.1

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.kept: Counter[str] = Counter()

    async def keep_alive(self, key: str) -> None:
        self.kept[key] += 1
        if key == "silent":
            await asyncio.Event().wait()


def test_a_box_that_does_not_answer_does_not_keep_others_from_being_kept(tmp_path: Path) -> None:
    async def main() -> None:
        host = SlowHost(tmp_path)
        provider = AgentProvider(host)
        keys = ("silent", "well")
        try:
            for key in keys:
                box = await provider.create(BoxSpec(key=key, labels={"owner": "o"}))
                await box.run("nap", ExecSpec(argv=["sleep", "600"], cwd=box.root), wait_s=0.0)

            async def often() -> bool:
                return host.kept["well"] >= 3

            await eventually(often, what="the other box is kept again and again")
            assert host.kept["silent"] == 1, "it is not asked again before it has answered"
        finally:
            for key in keys:
                await provider.delete(key)
            await provider.close()

    asyncio.run(main())
