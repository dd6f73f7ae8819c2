"""Keeps the workspace of a session awake while a person works in its sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sandstream.sessions import DurableSession
from sandstream.tui.conversation.question_screen import PEOPLE_ERRORS
from sandstream.tui.conversation.work import Work

_PARTS = 3
"""A request is sent this often within the idle time: one of them may get lost."""
_RETRY_S = 1.0
"""The pause after a request that failed."""
_UNLIMITED_LOOK_S = 60.0
"""How often the idle time is read again while there is none."""


@contextlib.asynccontextmanager
async def kept_awake(work: Work) -> AsyncIterator[None]:
    """Let the idle time of a session begin anew again and again. A single run has none.

    Args:
        work: The session or run.
    """
    if not work.is_session:
        yield
        return
    keeping = asyncio.create_task(_keep(work.session()))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(session: DurableSession) -> None:
    """Each request to a session counts as work, also one that changes nothing."""
    while True:
        pause_s = _RETRY_S
        with contextlib.suppress(*PEOPLE_ERRORS):  # the command in the box says what is wrong
            info = await session.configure()
            pause_s = _UNLIMITED_LOOK_S if info.idle_s is None else info.idle_s / _PARTS
        await asyncio.sleep(pause_s)
