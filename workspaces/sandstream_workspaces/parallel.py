"""Run work in parallel with a limit; the first failure cancels the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_parallel(
    at_once: int, work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]
) -> list[Result]:
    """The results, in the order of the items."""
    slots = asyncio.Semaphore(at_once)

    async def one(item: Item) -> Result:
        async with slots:
            return await work(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
