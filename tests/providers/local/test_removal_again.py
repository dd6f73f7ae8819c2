"""A removal that was cut short does not stand in the way of the next one of the same box."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandstream_providers.interface import BoxSpec
from sandstream_providers.local.provider import LocalProvider


def test_a_box_is_removed_though_another_of_its_name_is_half_removed(tmp_path: Path) -> None:
    async def story() -> None:
        provider = LocalProvider(tmp_path)
        await provider.check()
        left = tmp_path / "sandboxes" / ".deleted-one"
        left.mkdir()
        (left / "file").touch()
        await provider.create(BoxSpec(key="one", labels={}))
        await provider.delete("one")
        assert not (tmp_path / "sandboxes" / "one").exists()
        await provider.close()

    asyncio.run(story())
