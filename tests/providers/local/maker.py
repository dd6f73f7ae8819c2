"""A process that makes a box, for tests that kill it: ``python maker.py HOME KEY ISOLATION``.

Says ``ready`` when it is about to, ``made`` and the agent's first answer when it has; then waits.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sandstream_providers.interface import BoxSpec, ExecSpec
from sandstream_providers.local import LocalProvider


async def main(home: str, key: str, isolation: str) -> None:
    provider = LocalProvider(Path(home), isolation="none" if isolation == "none" else "required")
    await provider.check()
    print("ready", flush=True)
    box = await provider.create(BoxSpec(key=key, labels={"owner": "tests"}, ports=[8000]))
    count = "i=0; while [ $i -lt 600 ]; do echo $i; i=$((i+1)); sleep 0.1; done"
    spec = ExecSpec(argv=["sh", "-c", count], cwd=box.root)
    output = await box.run("count", spec, wait_s=0.2)
    print("made", output.session, flush=True)
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
