"""Waiting until what finished runs taught is in the memory. Nothing else does."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import Any

from sandstream_actors.sandbox.record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.memory_messages import MemoryState
from sandstream_bus.messages import RunDone
from sandstream_bus.subjects import RunId

from sandstream.exceptions import AgentsException, UserError
from sandstream.process import Process
from sandstream.result import RunResultBase
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState


@dataclass(frozen=True)
class MemoryStatus:
    """A memory after all that was to be remembered has been."""

    scope: str
    revision: int
    """Counts the changes of its files."""
    problems: tuple[str, ...] = ()
    """What failed on the way and was then done again."""
    others: tuple[MemoryStatus, ...] = ()
    """Further memories of the same workspace."""


class MemoryGivenUpError(AgentsException):
    """A memory could not be made, and nobody tries any more: ``sandstream parked`` shows what
    failed, and can have it done again. The runs are kept.
    """

    code = "memory_given_up"


async def wait_for_memory(what: Any, timeout: float | None = None) -> MemoryStatus:
    """Have a memory consolidated now, and wait until nothing of it is pending.

    ``what``: the result of a run, a sandbox session or its saved state, or the name of a scope.
    A workspace has what was learned when it is opened the next time.

    Raises:
        MemoryGivenUpError: if it could not be made.
        TimeoutError: after ``timeout`` seconds. The work goes on.
        UserError: if ``what`` has no memory.
    """
    process = await Process.of_this_loop()
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
        raise TimeoutError(
            f"memory {names} was not ready within {timeout} s; it is still worked on"
        ) from None
    return dataclasses.replace(found[0], others=tuple(found[1:]))


async def _settled(bus: Bus, scope: str, run: str) -> MemoryStatus:
    from sandstream_actors.memory.waiting import settled

    return _status(await settled(bus, scope, run=run))


def _status(state: MemoryState) -> MemoryStatus:
    problems = [it.problem for it in state.rollouts.values()] + [state.merge_problem]
    return MemoryStatus(state.scope, state.revision, tuple(filter(None, problems)))


async def _scopes_of(bus: Bus, what: Any) -> tuple[list[str], str]:
    """The memories that are meant, and the run whose end must be part of them, if there is one."""
    if isinstance(what, str):
        if not what:
            raise UserError("the name of a memory scope must not be empty")
        return [what], ""
    if isinstance(what, RunResultBase):
        return [await _scope_of_run(bus, RunId(what.run_id))], what.run_id
    if isinstance(what, SandboxSession):
        return await _scopes_in(bus, what.sandbox_id), ""
    if isinstance(what, SandboxSessionState | dict):
        return await _scopes_in(bus, SandboxSessionState.parse(what).sandbox_id), ""
    raise TypeError(
        "wait_for_memory needs a result, a sandbox session, its state, or the name of a scope; "
        f"not {type(what).__name__}"
    )


async def _scope_of_run(bus: Bus, run: RunId) -> str:
    last = await bus.log.last(bus.subjects.done(run))
    if last is None:
        raise UserError(f"run {run} has not ended: it is remembered when it has")
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
