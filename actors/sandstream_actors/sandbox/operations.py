"""One function per action that a session object can request of a live sandbox."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.wire.sandboxes import (
    ApplyPatch,
    ApplyPlan,
    Checkpoint,
    Content,
    Endpoint,
    Exec,
    Executed,
    Interact,
    Kill,
    KillAll,
    ListDir,
    Listing,
    MakeDir,
    MovePath,
    Patched,
    PathEntry,
    ReadFile,
    RemovePath,
    ResolvePort,
    Restore,
    RunTool,
    StatPath,
    ToolAnswer,
    WriteFile,
    real_path,
    wire_path,
)
from sandstream_providers.interface import (
    Addresses,
    Box,
    Entry,
    ExecSpec,
    FileWrite,
    OnOutput,
    Output,
    Provider,
)
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.sandbox.failures import Refused
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.live import Live
from sandstream_actors.sandbox.plans import apply_plan
from sandstream_actors.sandbox.tools.dispatch import ToolOutcome, run_tool
from sandstream_actors.sandbox.tools.patch_apply import apply_patch
from sandstream_actors.sandbox.user_box import box_of

READ_PART_BYTES = 16 * 1024 * 1024
"""The maximum that one answer carries; a session object requests the rest."""


class Tools(msgspec.Struct, frozen=True):
    """The objects that operations need besides the sandbox."""

    lifecycle: Lifecycle
    provider: Provider
    store: WorkspaceStore


def inside(live: Live, path: str) -> str:
    """An absolute path in the box; relative paths start at the root."""
    return posixpath.normpath(posixpath.join(live.record.root, real_path(path)))


async def tool_in(
    live: Live,
    name: str,
    arguments: str,
    *,
    cwd: str,
    op: str,
    on_output: OnOutput | None,
    user: str = "",
) -> ToolOutcome:
    """A built-in tool, called by a model or as a model would."""
    return await run_tool(
        name,
        arguments,
        box_of(live.box, user),
        rule=live.rule,
        root=live.record.root,
        cwd=inside(live, cwd),
        env=live.env,
        op=op,
        on_output=on_output,
    )


def box_for(user: str, tools: Tools, live: Live) -> Box:
    """The box as the user sees it; without one, as it is."""
    check_user(user, tools)
    return box_of(live.box, user)


def check_user(user: str, tools: Tools) -> None:
    """Refuse a user where the provider has none."""
    if user and "users" not in tools.provider.powers:
        raise Refused(
            "sandbox_config_invalid",
            f"the {tools.provider.name} provider has no users: leave out user= and run_as",
            user=user,
        )


async def _exec(
    tools: Tools, live: Live, op: str, action: Exec, on_output: OnOutput | None
) -> Executed:
    box = box_for(action.user, tools, live)
    spec = ExecSpec(
        argv=action.argv,
        cwd=inside(live, action.cwd),
        env={**live.env, **action.env},
        timeout_s=action.timeout_s,
        tty=action.tty,
        keep_stdin=action.keep_stdin,
    )
    return _executed(await box.run(op, spec, wait_s=action.wait_s, on_output=on_output))


async def _interact(
    tools: Tools, live: Live, op: str, action: Interact, on_output: OnOutput | None
) -> Executed:
    output = await live.box.interact(
        op, action.session, action.data, wait_s=action.wait_s, on_output=on_output
    )
    return _executed(output)


def _executed(output: Output) -> Executed:
    return Executed(
        state=output.state,
        stdout=output.stdout,
        stderr=output.stderr,
        exit_code=output.exit_code,
        session=output.session,
        killed=output.killed,
        dropped=output.dropped,
    )


async def _kill(tools: Tools, live: Live, op: str, action: Kill, _: Any) -> None:
    await live.box.kill(action.op)


async def _kill_all(tools: Tools, live: Live, op: str, action: KillAll, _: Any) -> None:
    await live.box.kill_all()


async def _read(tools: Tools, live: Live, op: str, action: ReadFile, _: Any) -> Content:
    box = box_for(action.user, tools, live)
    path = inside(live, action.path)
    limit = READ_PART_BYTES if action.limit is None else min(action.limit, READ_PART_BYTES)
    data = await box.read(path, live.rule, offset=action.offset, limit=limit)
    size = action.offset + len(data)
    if len(data) == limit:
        size = max(size, (await live.box.stat(path, live.rule)).size)
    return Content(data=data, size=size)


async def _write(tools: Tools, live: Live, op: str, action: WriteFile, _: Any) -> None:
    box = box_for(action.user, tools, live)
    path = inside(live, action.path)
    if action.append_at is not None:
        await box.append(op, path, action.data, live.rule, at=action.append_at)
        return
    change = FileWrite(path=path, data=action.data, mode=action.mode)
    await box.change(op, [change], live.rule)


async def _stat(tools: Tools, live: Live, op: str, action: StatPath, _: Any) -> Listing:
    entry = await live.box.stat(inside(live, action.path), live.rule)
    return Listing(entries=[_entry(entry, entry.path)])


async def _list(tools: Tools, live: Live, op: str, action: ListDir, _: Any) -> Listing:
    box = box_for(action.user, tools, live)
    path = inside(live, action.path)
    entries = await box.list(path, live.rule)
    return Listing(entries=[_entry(it, posixpath.join(path, it.path)) for it in entries])


def _entry(entry: Entry, path: str) -> PathEntry:
    return PathEntry(
        path=wire_path(path),
        kind=entry.kind,
        mode=entry.mode,
        size=entry.size,
        uid=entry.uid,
        gid=entry.gid,
        mtime_ns=entry.mtime_ns,
        target=wire_path(entry.target),
    )


async def _make_dir(tools: Tools, live: Live, op: str, action: MakeDir, _: Any) -> None:
    box = box_for(action.user, tools, live)
    await box.make_dir(op, inside(live, action.path), live.rule, parents=action.parents)


async def _remove(tools: Tools, live: Live, op: str, action: RemovePath, _: Any) -> None:
    box = box_for(action.user, tools, live)
    path = inside(live, action.path)
    await box.remove(op, path, live.rule, recursive=action.recursive)


async def _move(tools: Tools, live: Live, op: str, action: MovePath, _: Any) -> None:
    box = box_for(action.user, tools, live)
    await box.move(op, inside(live, action.path), inside(live, action.target), live.rule)


async def _apply_patch(tools: Tools, live: Live, op: str, action: ApplyPatch, _: Any) -> Patched:
    box = box_for(action.user, tools, live)
    root = live.record.root
    text = await apply_patch(box, live.rule, root, root, action.operations, op=op)
    return Patched(output=text)


async def _run_tool(
    tools: Tools, live: Live, op: str, action: RunTool, on_output: OnOutput | None
) -> ToolAnswer:
    check_user(action.user, tools)
    outcome = await tool_in(
        live,
        action.name,
        action.arguments,
        cwd=action.cwd,
        op=op,
        on_output=on_output,
        user=action.user,
    )
    return ToolAnswer(output=Raw(msgspec.json.encode(outcome.output)), error=outcome.error or "")


async def _apply_plan(tools: Tools, live: Live, op: str, action: ApplyPlan, _: Any) -> None:
    checked = await tools.lifecycle.sources.check(action.plan)
    await apply_plan(
        live.box,
        checked,
        provider=tools.provider,
        store=tools.store,
        op=op,
        only_ephemeral=action.only_ephemeral,
    )


async def _checkpoint(tools: Tools, live: Live, op: str, action: Checkpoint, _: Any) -> Any:
    return await tools.lifecycle.checkpoint(live, exclude=action.exclude)


async def _restore(tools: Tools, live: Live, op: str, action: Restore, _: Any) -> None:
    await tools.store.restore(
        live.box, action.tree, op=op, into=real_path(action.into), clear=action.clear
    )


async def _port(tools: Tools, live: Live, op: str, action: ResolvePort, _: Any) -> Endpoint:
    if action.port not in live.record.spec.ports:
        raise Refused(
            "exposed_port_unavailable",
            f"port {action.port} was not declared; name it in exposed_ports when the sandbox is "
            "created",
            reason="not_configured",
            port=action.port,
        )
    if isinstance(tools.provider, Addresses):
        found = await tools.provider.address(live.box, action.port)
        return Endpoint(host=found.host, port=found.port, tls=found.tls, query=found.query)
    host, port = await live.box.port(action.port)
    return Endpoint(host=host, port=port)


Operation = Callable[[Tools, Live, str, Any, OnOutput | None], Awaitable[Any]]
OPERATIONS: dict[type[Any], Operation] = {
    Exec: _exec,
    Interact: _interact,
    Kill: _kill,
    KillAll: _kill_all,
    ReadFile: _read,
    WriteFile: _write,
    StatPath: _stat,
    ListDir: _list,
    MakeDir: _make_dir,
    RemovePath: _remove,
    MovePath: _move,
    ApplyPatch: _apply_patch,
    RunTool: _run_tool,
    ApplyPlan: _apply_plan,
    Checkpoint: _checkpoint,
    Restore: _restore,
    ResolvePort: _port,
}
