"""The sandbox of a session: what it is made from, and operations on it that can be repeated.

An operation has an id that derives from the state of the session. A replica that repeats it gets
the reply of the first time.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.sandboxes import OWN_NODE, NoSandboxActor
from sandstream_bus.wire.messages import AgentRegistered
from sandstream_bus.wire.sandboxes import (
    Checkpoint,
    Checkpointed,
    Close,
    KillAll,
    Open,
    Opened,
    SandboxAction,
    SandboxRequest,
    SandboxSpec,
    SandboxUse,
)
from sandstream_bus.wire.sessions import LeftoverSandbox, SessionState, SessionWorkspace
from sandstream_bus.wire.specs import GraphSpec
from sandstream_bus.wire.subjects import session_sandbox

from sandstream_actors.run.deployed import UnknownAgent, resolved
from sandstream_actors.run.sandbox_record import SandboxRecord

R = TypeVar("R")


class WorkspaceFailed(Exception):
    """An operation on the workspace did not succeed, or its outcome is unknown."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def instead(failed: WorkspaceFailed, turn: int) -> WorkspaceFailed:
    """The failure with a way out, if there is one: a checkpoint needs no actor of its provider."""
    if failed.code != NoSandboxActor.code or not turn:
        return failed
    return WorkspaceFailed(
        failed.code, f"{failed}. Its files after turn {turn} are saved: fork that turn instead"
    )


class Deployed(NamedTuple):
    """The agent of a session as it is registered now."""

    registered: AgentRegistered
    graph: GraphSpec


async def deployed(bus: Bus, agent: str) -> Deployed:
    """The agent with all agents that it can reach. Raises :class:`UnknownAgent`."""
    try:
        registered = await bus.agents.find(agent)
        if registered is not None:
            return Deployed(registered, await resolved(registered.graph, bus.agents))
    except MessageError as error:  # perhaps of a newer worker
        raise UnknownAgent(
            f"the registration of agent {agent!r} cannot be read: {error}"
        ) from error
    raise UnknownAgent(
        f"no agent {agent!r} is registered any more. Start a worker that offers it: "
        "sandstream worker my_app.py"
    )


def use_of(graph: GraphSpec, state: SessionState, space: SessionWorkspace) -> SandboxUse | None:
    """How the run of a turn uses the workspace; None: the agent has no sandbox any more."""
    own = graph.agents[graph.start].sandbox
    if own is None:
        return None
    is_own = space.provider == own.spec.provider
    spec = msgspec.structs.replace(
        own.spec,
        provider=space.provider,
        # options of one provider mean nothing to another, nor does the name of its node
        options={**own.spec.options, **space.options} if is_own else space.options,
        node=own.spec.node if is_own else "",
        # the log of the sandbox may have expired: then the box is made from the last checkpoint
        base=space.tree or space.base or own.spec.base,
        session=state.session,
        run="",
    )
    return msgspec.structs.replace(
        own,
        id=session_sandbox(state.session, space.generation),
        owned=False,
        keep=True,
        checkpoint="end",
        spec=spec,
    )


def with_use(graph: GraphSpec, use: SandboxUse | None) -> GraphSpec:
    """The graph whose first agent uses the sandbox of the session."""
    if use is None:
        return graph
    first = msgspec.structs.replace(graph.agents[graph.start], sandbox=use)
    return msgspec.structs.replace(graph, agents={**graph.agents, graph.start: first})


class Workspaces:
    """The sandboxes of sessions."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def record(self, session: str, space: SessionWorkspace) -> SandboxRecord:
        """What the log says about the sandbox."""
        sandbox = session_sandbox(session, space.generation)
        return SandboxRecord.of(sandbox, await self._bus.sandboxes.read(sandbox))

    async def checkpoint(self, session: str, space: SessionWorkspace, op: str) -> str:
        """Store the files; return the snapshot. One that was never made has what it began with."""
        record = await self.record(session, space)
        if record.state == "unknown":
            return space.tree or space.base
        if record.is_closed and record.tree:
            return record.tree  # nothing has changed since; its box need not be woken
        done = await self._ask(record, space.provider, op, Checkpoint(), Checkpointed)
        return done.tree

    async def end_commands(self, session: str, space: SessionWorkspace, op: str) -> None:
        """End all commands that still run in the sandbox, if it is open."""
        record = await self.record(session, space)
        if record.is_live and not record.is_kept:
            await self._ask(record, space.provider, op, KillAll(), None)

    async def close(self, session: str, space: SessionWorkspace, op: str) -> str:
        """Store the files and end the box, or pause it; return the snapshot."""
        record = await self.record(session, space)
        if record.state == "unknown":
            return space.tree or space.base
        done = await self._ask(record, space.provider, op, Close(), Checkpointed)
        return done.tree

    async def open(self, session: str, space: SessionWorkspace, op: str, spec: SandboxSpec) -> None:
        """Make the sandbox or wake it up."""
        if not spec.node and (why := await self.unserved(space)):
            raise WorkspaceFailed("no_sandbox_actor", why)
        record = await self.record(session, space)
        action = Open(spec=spec, anew=True)
        await self._ask(record, space.provider, op, action, Opened, node=spec.node)

    async def unserved(self, space: SessionWorkspace) -> str:
        """Why no sandbox can be opened there now; empty: an actor serves the provider."""
        name = space.provider
        if await self._bus.presence.is_served(f"sandbox-{name}"):
            return ""
        return (
            f"no actor serves the provider {name}. Start one "
            f"(sandstream actor sandbox --provider {name}), or switch to another provider. A turn "
            "that waits for it must be interrupted before a switch"
        )

    async def discard(self, leftover: LeftoverSandbox) -> None:
        """Have a sandbox deleted. Its actor does so even if it starts later."""
        events = await self._bus.sandboxes.read(leftover.sandbox)
        record = SandboxRecord.of(leftover.sandbox, events)
        request = SandboxRequest(op="discard", action=Close(checkpoint=False, delete=True))
        await self._bus.sandboxes.tell(
            leftover.sandbox, request, provider=leftover.provider, node=_node(record)
        )

    async def _ask(
        self,
        record: SandboxRecord,
        provider: str,
        op: str,
        action: SandboxAction,
        result: type[R] | None,
        *,
        node: str = "",
    ) -> R:
        request = SandboxRequest(op=op, action=action)
        try:
            reply = await self._bus.sandboxes.request(
                record.sandbox,
                request,
                provider=provider,
                node=node or _node(record),
                repeats=True,
            )
        except NoSandboxActor as error:
            raise WorkspaceFailed(error.code, str(error)) from error
        if reply.error is not None:
            raise WorkspaceFailed(reply.error.code, reply.error.message)
        found: Any = None
        if result is not None:
            found = msgspec.json.decode(reply.result, type=result)
        return found  # type: ignore[no-any-return]


def _node(record: SandboxRecord) -> str:
    """The node to name in a request, for the sandboxes of a program; other nodes share the work."""
    return record.node if record.node.startswith(OWN_NODE) else ""
