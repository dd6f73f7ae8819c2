"""A model has answered: its hook, and which calls a person must agree to."""

from __future__ import annotations

from typing import Any

from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import CallRequested

from sandstream.hosting.hosted_run import HostedRun


async def review(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Any:
    raise NotImplementedError


async def reject(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Any:
    raise NotImplementedError


async def outside_hook(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Any:
    raise NotImplementedError
