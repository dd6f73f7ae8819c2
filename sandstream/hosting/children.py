"""Agents as tools: the input, the output and the events of a child run."""

from __future__ import annotations

from typing import Any

from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import CallRequested

from sandstream.hosting.hosted_run import HostedRun


async def child_input(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Any:
    raise NotImplementedError


async def child_output(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Any:
    raise NotImplementedError


async def watch(hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache) -> Any:
    raise NotImplementedError
