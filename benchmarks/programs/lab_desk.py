"""How a side program talks to the lab: a line of JSON asks, a line of JSON answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def serve(opened: Callable[[], Awaitable[Handler]], loop_kind: str) -> None:
    """Open, say that we are ready, answer until the input ends."""

    async def main() -> None:
        handle = await opened()
        answer({"ready": True})
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            answer(await handle(json.loads(line)))

    run(main, loop_kind)


def run(main: Callable[[], Awaitable[None]], loop_kind: str) -> None:
    factory = None
    if loop_kind == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())  # type: ignore[arg-type]


def answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
