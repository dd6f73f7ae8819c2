"""Runs work in a sandbox's box: the only place that decides what may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandstream_bus.crashpoints import crashpoint
from sandstream_providers.interface import BoxGone

from sandstream_actors.sandbox.failures import LetGo
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.live import Live

T = TypeVar("T")
RESTART_S = 0.5
"""How long a box may have no socket while it restarts."""


async def in_box(
    lifecycle: Lifecycle,
    sandbox: str,
    work: Callable[[Live], Awaitable[T]],
    *,
    sequence: int,
    fresh: bool,
    run: str = "",
    when_lost: Callable[[Live], T] | None = None,
    when_closed: Callable[[], T] | None = None,
) -> T:
    """The work's result. If its box disappears, the work is repeated: at once, and once more a
    moment later, because another replica may be restarting the box.

    For work that must not run twice, ``when_lost`` gives the outcome if it may have begun in a box
    that is gone, and ``when_closed`` if that box was closed on request. ``run``: the run that made
    the call.
    """
    for pause_s in (0.0, RESTART_S, None):
        try:
            live = await lifecycle.live(sandbox, run=run, asked_at=sequence)
        except LetGo:
            if when_closed is None:
                raise
            return when_closed()
        if when_lost is not None and live.may_have_run(sequence, fresh=fresh):
            return when_lost(live)
        crashpoint("sandbox.before_operation")
        try:
            with lifecycle.using(sandbox):
                result = await work(live)
        except BoxGone:
            lifecycle.forget(sandbox)
            fresh = False  # it may have begun
            if pause_s is None:
                raise
            if when_closed is not None and await lifecycle.was_closed(sandbox):
                return when_closed()
            await asyncio.sleep(pause_s)
        else:
            crashpoint("sandbox.after_operation")
            return result
    raise AssertionError("the loop returns or raises")
