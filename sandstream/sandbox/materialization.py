"""The result of writing a workspace, and a helper for bounded concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class MaterializedFile:
    path: Path
    sha256: str


@dataclass(frozen=True)
class MaterializationResult:
    files: list[MaterializedFile]


async def gather_in_order(
    task_factories: Sequence[Callable[[], Awaitable[T]]],
    *,
    max_concurrency: int | None = None,
) -> list[T]:
    """Run all, at most ``max_concurrency`` at a time; the results are in the given order.

    The first error cancels the rest, and is raised once they have ended.
    """
    if max_concurrency is not None and max_concurrency < 1:
        raise ValueError("max_concurrency must be at least 1, or None for no limit")
    slots = asyncio.Semaphore(max_concurrency or max(1, len(task_factories)))

    async def one(factory: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await factory()

    tasks = [asyncio.create_task(one(factory)) for factory in task_factories]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
