"""Pausing all processes of a box: by its control group, else by stopping every one of them."""

from __future__ import annotations

import os
import signal

from sandstream_providers.interface import BoxGone, ProviderError
from sandstream_providers.local import cgroups
from sandstream_providers.local.launch import inner_of
from sandstream_providers.local.records import BoxRecord, Layout
from sandstream_providers.processes import descendants, is_alive, is_stopped, until

_FREEZE_S = 10.0


async def freeze(layout: Layout, record: BoxRecord) -> None:
    if cgroups.freeze(record.cgroups, True):
        done = await until(lambda: cgroups.is_frozen(record.cgroups), timeout_s=_FREEZE_S)
    else:
        first = _first(layout, record)
        # A process may have started another just before it was stopped: look again.
        done = await until(lambda: _all_stopped(first), timeout_s=_FREEZE_S)
    if not done:
        await thaw(layout, record)
        raise ProviderError(f"sandbox {record.spec.key} could not be paused in {_FREEZE_S:.0f} s")


async def thaw(layout: Layout, record: BoxRecord) -> None:
    """Resume a paused box. Without a control group this also resumes stopped commands."""
    if cgroups.freeze(record.cgroups, False):
        return
    first = _first(layout, record)
    for pid in [*descendants(first), first]:
        _signal(pid, signal.SIGCONT)


def _first(layout: Layout, record: BoxRecord) -> int:
    inner = inner_of(layout, record)
    if inner is None or not is_alive(inner):
        raise BoxGone(f"sandbox {record.spec.key} does not run")
    return inner.pid


def _all_stopped(first: int) -> bool:
    moving = [pid for pid in [first, *descendants(first)] if not is_stopped(pid)]
    for pid in moving:
        _signal(pid, signal.SIGSTOP)
    return not moving


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
