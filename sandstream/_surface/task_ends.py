"""Cancellation around user code: ours must reach it, and its own must not reach us."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection
from typing import Any, TypeVar

from sandstream.exceptions import UserError

logger = logging.getLogger(__name__)

T = TypeVar("T")

GRACE_S = 1.0
"""How long to wait for code that ignores its cancellation."""


async def stop(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel all tasks and wait briefly; their results and exceptions are dropped."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        _, stubborn = await asyncio.wait(running, timeout=GRACE_S)
        for task in stubborn:
            logger.warning("User code keeps running after cancellation", extra={"task": repr(task)})
    for task in tasks:
        task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception, so that asyncio does not report it as never retrieved."""
    if not task.cancelled():
        task.exception()


async def not_cancelled_by_itself(what: str, code: Awaitable[T]) -> T:
    """Await user code; a ``CancelledError`` without a cancellation of the task is a failure."""
    try:
        return await code
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UserError(f"{what} raised CancelledError although it was not cancelled.") from error
