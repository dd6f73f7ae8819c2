"""A box gets the descriptors that are meant for it and no others."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from sandstream_providers.interface import BoxSpec, ExecSpec
from sandstream_providers.local.provider import LocalProvider


def test_what_its_maker_has_open_does_not_get_into_a_box(tmp_path: Path) -> None:
    async def story() -> None:
        provider = LocalProvider(tmp_path / "home")
        left_open = fcntl.fcntl(0, fcntl.F_DUPFD, 150)
        try:
            box = await provider.create(BoxSpec(key="one", labels={}))
            spec = ExecSpec(argv=["ls", "-l", "/proc/self/fd"], cwd=box.root)
            listed = (await box.run("op", spec)).stdout.decode()
            assert f" {left_open} -> " not in listed, listed
            await provider.delete("one")
        finally:
            os.close(left_open)
            await provider.close()

    asyncio.run(story())
