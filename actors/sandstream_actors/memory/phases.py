"""What both phases share: whether their run is still being worked on, and giving up."""

from __future__ import annotations

import asyncio
from typing import Final, Literal, NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.sandboxes import OWN_NODE
from sandstream_bus.wire.memories import ExtractRequested, MergeRequested
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.memory.context import Means
from sandstream_actors.memory.outbox import ask_later, digest_of
from sandstream_actors.memory.scope.pending_work import CANCELLED
from sandstream_actors.run.forced_ends import end_cancelled
from sandstream_actors.run.observed_log import has_news, read_run
from sandstream_actors.run.state import RunState

_AGAIN_S: Final = 0.5
"""After a restart of the server, its clients are disconnected for a moment."""


class GivenUp(MessageError):
    """A phase used up its attempts. Its request is parked, and starts anew if re-driven."""

    code = "memory.given_up"


class Condition(NamedTuple):
    is_: Literal["alive", "done", "dead"]
    done: RunDone | None = None


def phase_run(step: str, scope: str, sequence: int) -> str:
    """The id of the run that a request starts; always the same for the same request."""
    return f"memory-{step}-{digest_of(scope, sequence)}"


async def was_begun(bus: Bus, run: str) -> bool:
    """Whether an earlier delivery of the request started the run. That run covers only what was
    there at its time.
    """
    return await has_news(bus, run, after=0)


def problem_of(done: RunDone) -> str:
    """Why the run of a phase failed; empty if it succeeded."""
    if done.status == "completed":
        return ""
    message = done.error.message if done.error is not None else "it ended"
    if done.status == "cancelled":
        return f"{CANCELLED}: {message}"
    return f"{done.error.code if done.error is not None else done.status}: {message}"


async def condition_of(bus: Bus, run: str) -> Condition:
    """Whether the run is done, or all actors that it needs are present."""
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


async def watch_again(
    means: Means, scope: str, request: ExtractRequested | MergeRequested, *, cause: str
) -> None:
    """Check the run that the request watches once more, a while from now."""
    name, delay_s = f"watch-{request.watches}", means.watch_s
    await ask_later(means.bus, scope, name, request, cause=cause, delay_s=delay_s)


async def leave(bus: Bus, run: str) -> None:
    """Abandon a run that was cancelled and replaced. If no harness serves its pool, end it here."""
    events, _ = await read_run(bus, run)
    state = RunState.of(RunId(run), events)
    if state.started is None or state.done is not None:
        return
    if not await _is_served(bus, [f"harness-{state.pool}"]):
        await end_cancelled(bus, RunId(run))


def _needed(state: RunState) -> list[list[str]]:
    """Groups of consumers; at least one of each group must be served."""
    needed = [[f"harness-{state.pool}"]]
    agent = state.agent
    if agent.hosted_model:
        needed.append([f"tools-{state.host}"])
    if agent.sandbox is not None:
        opened = state.sandboxes.get(state.agent_name)
        spec = agent.sandbox.spec
        provider, node = (opened.provider, opened.node) if opened else (spec.provider, spec.node)
        consumers = [f"sandbox-{provider}-{node}"] if node else []
        if not node.startswith(OWN_NODE):  # shared nodes can take over from each other
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
