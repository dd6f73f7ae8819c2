"""A process that writes to a store until it is killed, and says on stdout what was acknowledged."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from actors.tracing.traces_by_hand import facts, opened, span

SPANS = 20


async def main(path: Path, name: str, count: int) -> None:
    async with opened(path) as store:

        async def write(lane: int) -> None:
            for number in range(count):
                run = f"{name}-{lane}-{number}"
                await store.begin(facts(run, last_seq=1, status="running", ended_ns=0))
                await store.record(facts(run), [span(run, n) for n in range(SPANS)], export=True)
                sys.stdout.write(f"{run}\n")
                sys.stdout.flush()

        await asyncio.gather(*map(write, range(4)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
