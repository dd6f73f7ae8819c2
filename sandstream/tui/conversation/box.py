"""The sandbox behind a session or run: commands, files and ports, by its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.sandboxes import (
    Endpoint,
    Exec,
    Executed,
    Kill,
    LiveOutput,
    ResolvePort,
    SandboxAction,
    SandboxRequest,
)
from sandstream_bus.wire.subjects import sandbox_of
from sandstream_workspaces.store import WorkspaceStore

from sandstream._inspect.live_output import OutputText, heard
from sandstream.client import Client
from sandstream.exceptions import UserError
from sandstream.sandbox.errors import error_from_failure
from sandstream.sessions import SessionInfo
from sandstream.tui.conversation.work import Work

T = TypeVar("T")
MOST_FILES = 5000
_FIND = (
    "find . -type d \\( -name .git -o -name node_modules -o -name .venv \\) -prune "
    f"-o -type f -print 2>/dev/null | head -n {MOST_FILES}"
)
_OPEN_S = 60.0
_LOOK_S = 0.1


class Box:
    """One sandbox.

    Args:
        client: The connection.
        sandbox: The id of the sandbox.
        provider: Its provider.
        node: The node that has it; empty: any node of the provider.
    """

    def __init__(self, client: Client, sandbox: str, provider: str, node: str) -> None:
        self.client = client
        self.id = sandbox
        self.provider = provider
        self.node = node

    async def ask(self, action: SandboxAction, kind: type[T], *, op: str = "") -> T:
        """Do something in the sandbox.

        Args:
            action: What to do.
            kind: What the reply is.
            op: The id of the operation; empty: a new one.

        Returns:
            The reply.

        Raises:
            SandboxError: It did not work.
        """
        request = SandboxRequest(op=op or new_op(), action=action)
        sandboxes = self.client.bus.sandboxes
        reply = await sandboxes.request(self.id, request, provider=self.provider, node=self.node)
        if reply.error is not None:
            raise error_from_failure(reply.error)
        return msgspec.json.decode(reply.result, type=kind)

    async def tell(self, action: SandboxAction) -> None:
        """Do something, without waiting for the reply.

        Args:
            action: What to do.
        """
        request = SandboxRequest(op=new_op(), action=action)
        sandboxes = self.client.bus.sandboxes
        await sandboxes.tell(self.id, request, provider=self.provider, node=self.node)

    async def run(self, command: str, on_output: Callable[[str], None]) -> Executed:
        """Run a shell command; the command ends if the caller stops waiting.

        Args:
            command: For ``/bin/sh``.
            on_output: Gets the output as it comes.

        Returns:
            How it ended, with all output.
        """
        op = new_op()
        text = OutputText()

        def take(piece: LiveOutput) -> None:
            if piece.call == op and (new := text.take(piece)):
                on_output(new)

        async with heard(self.client.bus, self.id, take):
            try:
                return await self.ask(Exec(argv=["/bin/sh", "-c", command]), Executed, op=op)
            except asyncio.CancelledError:
                await self.tell(Kill(op=op))
                raise

    async def files(self) -> list[str]:
        """The paths of the files in the workspace, without those of version control."""
        done = await self.ask(Exec(argv=["/bin/sh", "-c", _FIND], timeout_s=10), Executed)
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        return sorted(it.removeprefix("./") for it in lines)

    async def port(self, port: int) -> Endpoint:
        """Where a port of the sandbox can be reached.

        Args:
            port: The number of the port in the sandbox.
        """
        return await self.ask(ResolvePort(port=port), Endpoint)


async def box_of(work: Work, info: SessionInfo | None) -> Box:
    """The sandbox of a session or run. A sleeping session is woken up first.

    Args:
        work: The session or run.
        info: The state of the session; None for a run.

    Raises:
        UserError: It has no sandbox, or the sandbox does not open.
    """
    client = work.client
    if not work.is_session:
        return await _box_of_run(client, work.id)
    session = work.session()
    info = info or await session.info()
    if not info.sandbox:
        raise UserError("this session has no sandbox: its agent works without one")
    if info.box != "open":
        await session.wake()
        try:
            async with asyncio.timeout(_OPEN_S):
                while (info := await session.info()).box != "open":
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise UserError(
                f"the sandbox did not open within {_OPEN_S:.0f} s; is its provider "
                f"({info.provider}) served? /switch PROVIDER moves it to another one"
            ) from None
    found = await _box(client, info.sandbox)
    if found is None:
        raise UserError("the sandbox has not been created yet: send a message first")
    return found


async def _box_of_run(client: Client, run: str) -> Box:
    events = await client.events(run)
    started = next((it.event for it in events if isinstance(it.event, RunStarted)), None)
    for name, agent in started.graph.agents.items() if started is not None else ():
        if agent.sandbox is not None:
            found = await _box(client, agent.sandbox.id or sandbox_of(run, name))
            if found is not None:
                return found
    raise UserError("this run has no sandbox")


async def _box(client: Client, sandbox: str) -> Box | None:
    events = await client.bus.sandboxes.read(sandbox)
    if not events:
        return None
    record = SandboxRecord.of(sandbox, events)
    if record.state == "deleted":
        raise UserError("the sandbox of this run was deleted")
    node = record.node if record.is_live else ""
    return Box(client, sandbox, record.provider, node)


async def saved_files(client: Client, tree: str) -> list[str]:
    """The paths of the files in a checkpoint.

    Args:
        client: The connection.
        tree: The digest of the checkpoint.
    """
    entries = await WorkspaceStore(client.bus).entries(tree)
    return sorted(it.path for it in entries if it.kind == "file")[:MOST_FILES]
