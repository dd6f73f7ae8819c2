"""The user's session: what was said before, and what is said now."""

from __future__ import annotations

from typing import Any

from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import CallRequested

from sandstream.hosting.hosted_run import HostedRun


async def history(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Any:
    raise NotImplementedError


async def save(hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache) -> Any:
    raise NotImplementedError
