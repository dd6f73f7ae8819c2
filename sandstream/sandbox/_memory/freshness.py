"""Waits until the results of finished runs are in the memory."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
import uuid
from dataclasses import dataclass
from typing import Any

from sandstream_actors.memory.actor import CONSUMER
from sandstream_actors.memory.freshness import Marks, has_reached, is_settled, marks_of
from sandstream_actors.memory.scope.pending_work import has_given_up, has_news, is_extracting
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.wire.memories import MemoryState, MergeRequested
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import RunId, is_token, scope_token

from sandstream._surface.runtime import runtime
from sandstream.exceptions import AgentsException, UserError
from sandstream.result import RunResultBase
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState

_LOOK_S = 0.05
_ASK_AGAIN_S = 2.0
_READ_PATIENCE_S = 10.0


@dataclass(frozen=True)
class MemoryStatus:
    """A memory without pending work."""

    scope: str
    """The name of the memory."""
    revision: int
    """The number of changes to its files."""
    problems: tuple[str, ...] = ()
    """Failures on the way that were retried successfully."""
    others: tuple[MemoryStatus, ...] = ()
    """Other memories of the same workspace."""


class MemoryGivenUpError(AgentsException):
    """A memory could not be made, and there are no more attempts. ``sandstream parked`` shows the
    failures and can re-drive them. The runs are kept.
    """

    code = "memory_given_up"


async def wait_for_memory(what: Any, timeout: float | None = None) -> MemoryStatus:
    """Consolidate a memory now, and wait until nothing is pending.

    A workspace gets the new memory when it is next opened.

    Args:
        what: The result of a run, a sandbox session or its saved state, or the name of a scope.
        timeout: How long to wait, in seconds; ``None`` removes the limit.

    Returns:
        The memory, with the number of its changes.

    Raises:
        MemoryGivenUpError: The memory could not be made.
        TimeoutError: The time is over. The work continues.
        UserError: ``what`` has no memory.

    Example:
        result = await Runner.run(agent, "Remember that I like tabs.", run_config=config)
        status = await wait_for_memory(result, timeout=120)
    """
    if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
        raise UserError(f"timeout must be a number of seconds, or None; not {timeout!r}")
    process = await runtime().process()
    scopes, run = await _scopes_of(process.bus, what)
    process.memory.want()
    await process.memory.ensure()
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            found = [await _settled(process.bus, scope, run) for scope in scopes]
    except TimeoutError:
        if not limit.expired():
            raise
        names = ", ".join(map(repr, scopes))
        states = [(await process.bus.memories.read(scope)).state for scope in scopes]
        problems = [problem for state in states for problem in _problems(state)]
        more = f" (so far: {'; '.join(problems)})" if problems else ""
        raise TimeoutError(
            f"memory {names} was not ready within {timeout} s; it is still worked on{more}"
        ) from None
    return dataclasses.replace(found[0], others=tuple(found[1:]))


async def _settled(bus: Bus, scope: str, run: str) -> MemoryStatus:
    """Request consolidations until there is nothing left to consolidate."""
    state = (await bus.memories.read(scope)).state
    problems: dict[str, None] = dict.fromkeys(_problems(state))
    if run and not problems and is_settled(state, run):
        return MemoryStatus(scope, state.revision)
    asked_at = -math.inf
    marks: Marks | None = None
    while True:
        has_read = False
        if time.monotonic() >= asked_at + _ASK_AGAIN_S:
            has_read = await _ask(bus, scope)
            asked_at = time.monotonic()
        state = (await bus.memories.read(scope)).state
        if marks is None:  # later work is not waited for
            marks = {} if run else marks_of(state)
        problems |= dict.fromkeys(_problems(state))
        if is_settled(state, run or None) or (marks and has_reached(state, marks)):
            _check_not_given_up(state, run)
            return MemoryStatus(scope, state.revision, tuple(problems))
        if run and has_read and not _is_noted(state, run):
            raise MemoryGivenUpError(
                f"run {run} could not be written down for memory {scope!r}: see `sandstream parked`"
            )
        if state.wanted or state.merging or state.merge_attempt or is_extracting(state):
            asked_at = time.monotonic()  # work is in progress
        await asyncio.sleep(_LOOK_S)


async def _ask(bus: Bus, scope: str) -> bool:
    """Request a consolidation. Was it, with all events before it, read in time?"""
    sequence = await bus.memories.send(
        bus.subjects.memory_merge(scope),
        MergeRequested(reason="asked"),
        msg_id=f"memory:{scope_token(scope)}:asked:{uuid.uuid4().hex}",
    )
    deadline = time.monotonic() + _READ_PATIENCE_S  # work on another memory may delay it
    while time.monotonic() < deadline:
        info = await bus.topology.consumer_info(bus.connection, CONSUMER)
        if info and info["ack_floor"]["stream_seq"] >= sequence:
            return True
        await asyncio.sleep(_LOOK_S)
    return False


def _check_not_given_up(state: MemoryState, run: str) -> None:
    """Raise if the wanted memory needs intervention. A caller that waits for one run is not told
    about failures of other runs.
    """
    for rollout in state.rollouts.values():
        if has_given_up(rollout) and (not run or run in rollout.runs):
            raise MemoryGivenUpError(
                f"nothing could be extracted from {rollout.id!r} for memory {state.scope!r}: "
                f"{rollout.problem}"
            )
    if state.merge_problem and has_news(state):
        raise MemoryGivenUpError(
            f"memory {state.scope!r} could not be consolidated: {state.merge_problem}"
        )


def _is_noted(state: MemoryState, run: str) -> bool:
    return run in state.forgotten or any(run in it.runs for it in state.rollouts.values())


def _problems(state: MemoryState) -> list[str]:
    found = [*(it.problem for it in state.rollouts.values()), state.merge_problem]
    return [it for it in found if it]


async def _scopes_of(bus: Bus, what: Any) -> tuple[list[str], str]:
    """The scopes that are meant, and the run whose end they must include, if there is one."""
    if isinstance(what, str):
        if not what:
            raise UserError("the name of a memory scope must not be empty")
        await _check_no_run(bus, what)
        return [what], ""
    if isinstance(what, RunResultBase):
        return [await _scope_of_run(bus, RunId(what.run_id))], what.run_id
    if isinstance(what, SandboxSession):
        return await _scopes_in(bus, what.bus_name), ""
    if isinstance(what, SandboxSessionState | dict):
        return await _scopes_in(bus, SandboxSessionState.parse(what).bus_name), ""
    raise TypeError(
        "wait_for_memory needs a result, a sandbox session, its state, or the name of a scope; "
        f"not {type(what).__name__}"
    )


async def _check_no_run(bus: Bus, name: str) -> None:
    """Raise if the name is the id of a run: waiting for it would have no effect."""
    if not is_token(name) or (await bus.memories.read(name)).sequence:
        return
    last = await bus.log.last(bus.subjects.done(name))
    if last is not None and isinstance(last.event, RunDone) and last.event.memory is not None:
        raise UserError(
            f"{name!r} is a run, not a memory; its memory is {last.event.memory.scope!r}: "
            "give that, or the result of the run"
        )


async def _scope_of_run(bus: Bus, run: RunId) -> str:
    last = await bus.log.last(bus.subjects.done(run))
    if last is None:
        raise UserError(f"run {run} has not ended; memories are extracted when it has")
    if not isinstance(last.event, RunDone) or last.event.memory is None:
        raise UserError(
            f"run {run} is not remembered: the agent that it ended with has no Memory capability "
            "that generates"
        )
    return last.event.memory.scope


async def _scopes_in(bus: Bus, sandbox: str) -> list[str]:
    record = SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))
    if not record.memories:
        raise UserError(f"no agent with a Memory capability has worked in sandbox {sandbox}")
    return list(record.memories)
