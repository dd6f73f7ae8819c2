"""What both phases have in common: whether a run of theirs is still worked on, and giving up."""

from __future__ import annotations

import asyncio
from typing import Final, Literal, NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError
from sandstream_bus.messages import RunDone
from sandstream_bus.sandboxes import OWN_NODE
from sandstream_bus.subjects import RunId

from sandstream_actors.memory.standing import CANCELLED
from sandstream_actors.memory.telling import digest_of
from sandstream_actors.run_state import RunState
from sandstream_actors.tracing.run_reading import has_news, read_run

_AGAIN_S: Final = 0.5
"""After a restart of the server its clients are away for a moment."""


class GivenUp(MessageError):
    """A phase failed as often as it may: its request is parked, and starts anew if re-driven."""

    code = "memory.given_up"


class Condition(NamedTuple):
    is_: Literal["alive", "done", "dead"]
    done: RunDone | None = None


def phase_run(step: str, scope: str, sequence: int) -> str:
    """The run that a request starts, always the same one."""
    return f"memory-{step}-{digest_of(scope, sequence)}"


async def was_begun(bus: Bus, run: str) -> bool:
    """Did an earlier delivery of its request start it? What that asked for is over then, and what
    it found says nothing about what has come since.
    """
    return await has_news(bus, run, after=0)


def problem_of(done: RunDone) -> str:
    """Why a run of a phase did not do it; empty: it did."""
    if done.status == "completed":
        return ""
    message = done.error.message if done.error is not None else "it ended"
    if done.status == "cancelled":
        return f"{CANCELLED}: {message}"
    return f"{done.error.code if done.error is not None else done.status}: {message}"


async def condition_of(bus: Bus, run: str) -> Condition:
    """Is anybody there who works on the run?"""
    events, _ = await read_run(bus, run)
    state = RunState.of(RunId(run), events)
    if state.done is not None:
        return Condition("done", state.done)
    if state.started is None:
        return Condition("dead")
    for consumers in _needed(state):
        if not await _is_served(bus, consumers):
            return Condition("dead")
    return Condition("alive")


def _needed(state: RunState) -> list[list[str]]:
    """Of each group of consumers one must be served."""
    needed = [[f"harness-{state.pool}"]]
    agent = state.agent
    if agent.hosted_model:
        needed.append([f"tools-{state.host}"])
    if agent.sandbox is not None:
        opened = state.sandboxes.get(state.agent_name)
        spec = agent.sandbox.spec
        provider, node = (opened.provider, opened.node) if opened else (spec.provider, spec.node)
        consumers = [f"sandbox-{provider}-{node}"] if node else []
        if not node.startswith(OWN_NODE):  # nodes take over for each other
            consumers.append(f"sandbox-{provider}")
        needed.append(consumers)
    return needed


async def _is_served(bus: Bus, consumers: list[str]) -> bool:
    for pause_s in (_AGAIN_S, 0.0):
        for consumer in consumers:
            if await bus.presence.is_served(consumer):
                return True
        await asyncio.sleep(pause_s)
    return False
