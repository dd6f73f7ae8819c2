"""Cancellation around the user's code: ours must reach it, its own must not reach us."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection
from typing import Any, TypeVar

from sandstream.exceptions import UserError

logger = logging.getLogger(__name__)

T = TypeVar("T")

GRACE_S = 1.0
"""Code that swallows its cancellation must not keep the run waiting for ever."""


async def stop(tasks: Collection[asyncio.Task[Any]]) -> None:
    """End all of them; what they still say counts no more."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        _, stubborn = await asyncio.wait(running, timeout=GRACE_S)
        for task in stubborn:
            logger.warning("User code goes on after it was cancelled", extra={"task": repr(task)})
    for task in tasks:
        task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    """Look at the exception, or asyncio reports that nobody did."""
    if not task.cancelled():
        task.exception()


async def not_cancelled_by_itself(what: str, code: Awaitable[T]) -> T:
    """Await user code in a task of its own; a ``CancelledError`` that nobody sent is a failure."""
    try:
        return await code
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UserError(f"{what} raised CancelledError although nobody cancelled it.") from error
