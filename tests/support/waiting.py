"""Waiting for events with a deadline, never for a time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 15.0


async def eventually(
    look: Callable[[], Awaitable[T | None]],
    *,
    within_s: float = DEADLINE_S,
    what: str = "condition",
) -> T:
    """Check repeatedly until the result is true; return it."""
    try:
        async with asyncio.timeout(within_s):
            while not (found := await look()):
                await asyncio.sleep(0.01)
            return found
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {within_s} s") from None


async def until(holds: Callable[[], T], *, within_s: float = DEADLINE_S, what: str = "") -> T:
    """The same for a synchronous check."""

    async def look() -> T:
        return holds()

    return await eventually(look, within_s=within_s, what=what or "condition")
