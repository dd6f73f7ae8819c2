"""Starting a box and ending one.

The launcher waits until its pid is on record, so whenever the maker dies there is either no box or
one that can be found. A box does not depend on who made it: it has no terminal, no parent that it
dies with, and its agent holds the sockets.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from pathlib import Path

import msgspec

from sandstream_providers.box.package import agent_source
from sandstream_providers.interface import ProviderError
from sandstream_providers.local import cage, cgroups
from sandstream_providers.local.host import Host
from sandstream_providers.local.processes import (
    ChildFds,
    ProcessMark,
    descendants,
    is_alive,
    mark,
    send,
    spawn_detached,
    until,
)
from sandstream_providers.local.records import BoxRecord, Layout

_MB = 1024 * 1024
_INNER_S = 20.0
_END_S = 20.0
_BACKLOG = 128


async def launch(host: Host, layout: Layout, record: BoxRecord, group_name: str) -> BoxRecord:
    """Start the box's processes on its files; on record before they do anything."""
    key = record.spec.key
    record = msgspec.structs.replace(
        record,
        cgroups=cgroups.make(host.groups, group_name, record.spec.limits),
        socket=str(layout.new_socket(key)),
        ports={},
        outer=None,
        inner=None,
        state="stopped",
    )
    layout.write(record)
    with contextlib.ExitStack() as stack:
        fds = stack.enter_context(ChildFds())
        waits, go = os.pipe()
        stack.callback(os.close, waits)
        stack.callback(os.close, go)
        fds.add(waits)
        task = {
            "listen_fd": fds.add_socket(stack.enter_context(_listen_unix(Path(record.socket)))),
            "jobs_fd": _add_path(fds, layout.jobs(key), os.O_RDONLY | os.O_DIRECTORY),
            "ports": {},
            "root": record.root,
            "env": {**_base_env(record), "HOME": record.root, **record.spec.env},
            "output_bytes": record.spec.limits.output_mb * _MB,
            "memory_bytes": _watched_memory(host, record),
            "wall_s": record.spec.limits.wall_s,
            "death_fd": None,
        }
        if record.mode == "bubblewrap":
            listeners = {port: stack.enter_context(_listen_tcp()) for port in record.spec.ports}
            task["ports"] = {str(p): fds.add_socket(tcp) for p, tcp in listeners.items()}
            ports = {port: int(tcp.getsockname()[1]) for port, tcp in listeners.items()}
        else:
            ports = {port: port for port in record.spec.ports}
        argv = _command(host, layout, record, fds, json.dumps(task))
        outer = spawn_detached(argv, {"PATH": cage.PATH}, fds, layout.log(key))
        record = msgspec.structs.replace(record, outer=outer, ports=ports, state="running")
        layout.write(record)
        os.write(go, b"go\n")
    return await settled(layout, record)


async def settled(layout: Layout, record: BoxRecord) -> BoxRecord:
    """The record with the box's first process, also if its maker died before it knew that one.

    Under the lock only. Without it, a box whose bubblewrap is killed later would be lost sight of.
    """
    if record.inner is not None or not is_alive(record.outer):
        return record
    inner = await _first_process(layout, record)
    if inner is not None:
        record = msgspec.structs.replace(record, inner=inner)
        layout.write(record)
    return record


def is_running(layout: Layout, record: BoxRecord) -> bool:
    """Whether the box's first process lives: bubblewrap outside may die without harm."""
    return is_alive(inner_of(layout, record))


def inner_of(layout: Layout, record: BoxRecord) -> ProcessMark | None:
    """The first process in the box, also if the maker died before it was on record."""
    if record.inner is not None:
        return record.inner
    if record.mode == "none":
        return record.outer
    if not is_alive(record.outer):
        return None
    pid = _noted_pid(layout, record)
    return None if pid is None else mark(pid)


async def end(layout: Layout, record: BoxRecord) -> None:
    """End all processes of the box and wait until they are gone."""
    record = await settled(layout, record)
    inner, others = record.inner, []
    if record.outer is not None and (record.mode == "none" or inner is None):
        # No namespace ends them with its first process, or none is known: one by one then.
        send(record.outer, signal.SIGSTOP)
        if is_alive(record.outer):
            pids = descendants(record.outer.pid)
            others = [found for pid in pids if (found := mark(pid)) is not None]
    cgroups.kill(record.cgroups)
    ours = [inner, *others, record.outer]
    for process in ours:
        send(process, signal.SIGKILL)
    cgroups.freeze(record.cgroups, False)
    if not await until(lambda: not any(map(is_alive, ours)), timeout_s=_END_S):
        raise ProviderError(f"the processes of sandbox {record.spec.key} do not end: {ours}")
    left = await cgroups.remove(record.cgroups)
    if left:
        raise ProviderError(f"control groups of sandbox {record.spec.key} are in use: {left}")


def _command(host: Host, layout: Layout, record: BoxRecord, fds: ChildFds, task: str) -> list[str]:
    key, spec = record.spec.key, record.spec
    if host.bubblewrap is None:
        agent = layout.folder(key) / "agent.py"
        agent.write_bytes(agent_source())
        argv = [host.python, "-I", "-S", str(agent), task]
        return cage.launcher(argv, groups=record.cgroups, mounts=[])
    cage.check_grants(spec.grants, layout.home, other_user=record.uid is not None)
    workspace = None if record.in_memory else layout.workspace(key)
    mounts = []
    if workspace is not None and record.uid is not None:
        closed = cage.first_closed(workspace)
        if closed is not None and closed != workspace:
            mounts.append((workspace, closed))
            workspace = closed
    info = _add_path(fds, layout.namespace_info(key), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    command = [
        *cage.as_user(record.uid),
        *cage.bubblewrap(
            host.bubblewrap,
            fds,
            root=record.root,
            network=spec.network == "host",
            workspace=workspace,
            limits=spec.limits,
            grants=spec.grants,
            read_only=host.shown,
            agent=(cage.agent_path(key), agent_source()),
            seccomp=host.seccomp,
        ),
        *("--as-pid-1", "--info-fd", str(info), "--"),
        *cage.limits_prefix(spec.limits, open_files=host.open_files),
        *(host.python, "-I", "-S", cage.agent_path(key), task),
    ]
    return cage.launcher(command, groups=record.cgroups, mounts=mounts)


def _base_env(record: BoxRecord) -> dict[str, str]:
    """Nothing of the host's; without isolation the box has the host's programs, so its path too."""
    if record.mode == "bubblewrap":
        return cage.BASE_ENV
    return {**cage.BASE_ENV, "PATH": os.environ.get("PATH", cage.PATH)}


def _watched_memory(host: Host, record: BoxRecord) -> int | None:
    """For the agent's own watch, where no control group does it."""
    limit_mb = record.spec.limits.memory_mb
    if limit_mb is None or host.groups.version("memory") is not None:
        return None
    return limit_mb * _MB


async def _first_process(layout: Layout, record: BoxRecord) -> ProcessMark | None:
    if record.mode == "none":
        return record.outer
    await until(
        lambda: _noted_pid(layout, record) is not None or not is_alive(record.outer),
        timeout_s=_INNER_S,
    )
    return inner_of(layout, record)


def _noted_pid(layout: Layout, record: BoxRecord) -> int | None:
    try:
        noted = json.loads(layout.namespace_info(record.spec.key).read_bytes())
    except (FileNotFoundError, json.JSONDecodeError):
        return None  # not written yet
    return int(noted["child-pid"])


def _add_path(fds: ChildFds, path: Path, flags: int) -> int:
    fd = os.open(path, flags, 0o600)
    try:
        return fds.add(fd)
    finally:
        os.close(fd)


def _listen_unix(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_tcp() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
