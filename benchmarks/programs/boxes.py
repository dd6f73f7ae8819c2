"""One provider of local boxes, without a bus: commands in a box, and boxes to their first command.

Started with the ``providers`` folder of the tree to measure first on ``PYTHONPATH``.
"""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Any

from lab_desk import Handler, serve
from sandstream_providers.interface import Box, BoxSpec, ExecSpec
from sandstream_providers.local.provider import LocalProvider

OWNER = "benchmark"


async def opened() -> Handler:
    provider = LocalProvider(Path(sys.argv[1]))
    await provider.check()
    box = await provider.create(_spec())

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] != "end":
            before = time.process_time()
            took_s = [
                await (_command(box) if request["do"] == "exec" else _first_command(provider))
                for _ in range(request["times"])
            ]
            return {"took_s": took_s, "cpu_s": time.process_time() - before}
        for info in await provider.list_owned(OWNER):
            await provider.delete(info.key)
        await provider.close()
        return {}

    return handle


def _spec() -> BoxSpec:
    return BoxSpec(key=f"b-{uuid.uuid4().hex}", labels={"owner": OWNER})


async def _command(box: Box) -> float:
    before = time.perf_counter()
    output = await box.run(uuid.uuid4().hex, ExecSpec(argv=["true"], cwd=box.root))
    assert output.exit_code == 0
    return time.perf_counter() - before


async def _first_command(provider: LocalProvider) -> float:
    before = time.perf_counter()
    box = await provider.create(_spec())
    await _command(box)
    took = time.perf_counter() - before
    await provider.delete(box.key)
    return took


if __name__ == "__main__":
    serve(opened, "asyncio")
