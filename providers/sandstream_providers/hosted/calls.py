"""Calls to a vendor: each has our own deadline, and calls that can be repeated are repeated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from sandstream_providers.hosted.errors import VendorBusy, VendorSilent

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long we go on asking a vendor that is busy."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long a host waits, in seconds."""

    patience_s: float = PATIENCE_S
    """For a vendor that is busy or silent."""
    start_s: float = 120.0
    """For a box to run, after the vendor has taken the order."""
    greeting_s: float = 60.0
    """For the agent of a box to start."""
    silent_s: float = 20.0
    """For the answer of an agent. Then the connection is given up and made again."""


async def within(what: str, seconds: float, work: Awaitable[T]) -> T:
    """Wait for one call, with our own deadline: an SDK may have none."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise VendorSilent(f"{what}: no answer within {seconds:.0f} s") from error


async def patiently(
    call: Callable[[], Awaitable[T]], *, again: bool = True, patience_s: float = PATIENCE_S
) -> T:
    """Repeat a call while the vendor is busy.

    Args:
        call: One call, with its own deadline.
        again: Also repeat it after a lost answer: doing it twice has the same effect as once.
        patience_s: Then the last error is raised. A vendor that asks for a longer pause is not
            waited for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except VendorBusy as error:
            wait_s = error.retry_after_s if error.retry_after_s is not None else _spread(pause_s)
            if loop.time() + wait_s > deadline:
                raise
        except VendorSilent:
            wait_s = _spread(pause_s)
            if not again or loop.time() + wait_s > deadline:
                raise
        await asyncio.sleep(wait_s)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)


def _spread(seconds: float) -> float:
    """Many boxes must not come back at the same moment."""
    return seconds * random.uniform(0.5, 1.0)
