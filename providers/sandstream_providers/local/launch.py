"""Starting a box and ending one.

The launcher waits until its pid is on record. So if the maker dies at any moment, there is either
no box or one that can be found. A box does not depend on the process that made it: it has no
terminal, its agent holds the sockets, and the parent that it dies with is its own launcher. Its
agent ends the box when its directory is gone, or when no process has held its lease for a while.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec

from sandstream_providers.box.agent import landlock
from sandstream_providers.box.package import agent_source
from sandstream_providers.box.start import agent_config
from sandstream_providers.environment import variables
from sandstream_providers.grants import check_grants, first_closed
from sandstream_providers.interface import ProviderError
from sandstream_providers.leases import Patience
from sandstream_providers.local import cage, cgroups, sockets
from sandstream_providers.local.machine import Machine
from sandstream_providers.local.records import BoxRecord, Layout
from sandstream_providers.processes import (
    BASE_ENV,
    PATH,
    ChildFds,
    ProcessMark,
    command_line,
    descendants,
    is_alive,
    mark,
    send,
    spawn_detached,
    until,
)

_MB = 1024 * 1024
_INNER_S = 20.0
_END_S = 20.0
_BACKLOG = 128


async def launch(
    machine: Machine, layout: Layout, record: BoxRecord, group_name: str, patience: Patience
) -> BoxRecord:
    """Start the box's processes on its files; on record before they do anything."""
    key = record.spec.key
    groups = cgroups.plan(machine.groups, group_name, record.spec.limits)
    record = msgspec.structs.replace(
        record,
        cgroups=[str(path) for path in groups.paths],
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
        if groups.commands is not None:
            _add_path(fds, Path(os.devnull), os.O_RDONLY)  # keeps cage.PROCS_FD free
        task = {
            "listen_fd": fds.add_socket(stack.enter_context(sockets.listen(Path(record.socket)))),
            "jobs_fd": _add_path(fds, layout.jobs(key), os.O_RDONLY | os.O_DIRECTORY),
            "ports": {},
            **agent_config(record.spec, record.root, _base_env(record)),
            **_memory_task(record, groups),
            "landlock": _landlock_task(machine, record),
            "lease_fd": _add_path(fds, layout.lease(key), os.O_RDWR | os.O_CREAT),
            # files in memory would be lost: wait longer for a process that wants them
            "idle_s": patience.busy_s if record.in_memory else patience.idle_s,
            "busy_s": patience.busy_s,
        }
        if record.mode == "bubblewrap":
            listeners = {port: stack.enter_context(_listen_tcp()) for port in record.spec.ports}
            task["ports"] = {str(p): fds.add_socket(tcp) for p, tcp in listeners.items()}
            ports = {port: int(tcp.getsockname()[1]) for port, tcp in listeners.items()}
        else:
            ports = {port: port for port in record.spec.ports}
        argv = _command(machine, layout, record, groups, fds, json.dumps(task))
        outer = spawn_detached(argv, {"PATH": PATH}, fds, layout.log(key))
        record = msgspec.structs.replace(record, outer=outer, ports=ports, state="running")
        layout.write(record)
        # not earlier: if we die now, the launcher removes them
        cgroups.make(machine.groups, groups, record.spec.limits)
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
    """Whether the box's first process lives, and its parent: they die together."""
    return is_alive(record.outer) and is_alive(inner_of(layout, record))


def has_work(layout: Layout, record: BoxRecord) -> bool:
    """Whether processes besides the agent run in the box, including background processes."""
    inner = inner_of(layout, record)
    if inner is None or not is_alive(inner):
        return False
    agent = command_line(inner.pid)  # who starts commands is a copy of it
    return any(command_line(pid) != agent for pid in descendants(inner.pid))


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
    cgroups.kill(record.cgroups)
    if record.mode == "bubblewrap" and record.inner is not None:
        # The launcher outside is not killed before its control groups are gone: if this process
        # dies in the meantime, the launcher removes them.
        send(record.inner, signal.SIGKILL)
        cgroups.freeze(record.cgroups, False)
        await until(lambda: not is_alive(record.inner), timeout_s=_END_S)
        await cgroups.remove(record.cgroups)
    await _end_one_by_one(record)
    left = await cgroups.remove(record.cgroups)
    if left:
        raise ProviderError(f"control groups of sandbox {record.spec.key} are in use: {left}")


async def _end_one_by_one(record: BoxRecord) -> None:
    """End each process that is left: the launcher, or all if no namespace ends them together."""
    send(record.outer, signal.SIGSTOP)
    pids = descendants(record.outer.pid) if record.outer and is_alive(record.outer) else []
    found = [mark(pid) for pid in pids]
    ours = [record.inner, *found, record.outer]
    for process in ours:
        send(process, signal.SIGKILL)
    cgroups.freeze(record.cgroups, False)
    if not await until(lambda: not any(map(is_alive, ours)), timeout_s=_END_S):
        raise ProviderError(f"the processes of sandbox {record.spec.key} do not end: {ours}")


def _command(
    machine: Machine,
    layout: Layout,
    record: BoxRecord,
    groups: cgroups.Groups,
    fds: ChildFds,
    task: str,
) -> list[str]:
    key, spec = record.spec.key, record.spec
    if machine.bubblewrap is None:
        agent = layout.folder(key) / "agent.py"
        agent.write_bytes(agent_source())
        argv = [machine.python, "-I", "-S", str(agent), task]
        return cage.launcher(argv, groups=groups, mounts=[])
    check_grants(spec.grants, layout.home, other_user=record.uid is not None)
    workspace = None if record.in_memory else layout.workspace(key)
    mounts = []
    if workspace is not None and record.uid is not None:
        closed = first_closed(workspace)
        if closed is not None and closed != workspace:
            mounts.append((workspace, closed))
            workspace = closed
    info = _add_path(fds, layout.namespace_info(key), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    command = [
        *cage.as_user(record.uid),
        *cage.bubblewrap(
            machine.bubblewrap,
            fds,
            root=record.root,
            network=spec.network == "host",
            workspace=workspace,
            limits=spec.limits,
            grants=spec.grants,
            read_only=machine.shown,
            agent=(cage.agent_path(key), agent_source()),
            seccomp=machine.seccomp,
            die_with_parent=True,
        ),
        *("--as-pid-1", "--info-fd", str(info), "--"),
        *cage.limits_prefix(spec.limits, open_files=machine.open_files),
        *(machine.python, "-I", "-S", cage.agent_path(key), task),
    ]
    return cage.launcher(command, groups=groups, mounts=mounts, stays=True)


def _base_env(record: BoxRecord) -> dict[str, str]:
    """Nothing of the host's; without isolation the box has the host's programs, so its path too."""
    if record.mode == "bubblewrap":
        return BASE_ENV
    return {**BASE_ENV, "PATH": variables().get("PATH", PATH)}


def _memory_task(record: BoxRecord, groups: cgroups.Groups) -> dict[str, Any]:
    """What the agent needs to keep the limit of memory, or to help the kernel to."""
    limits = record.spec.limits
    if limits.memory_mb is None:
        return {}
    if groups.commands is None:
        directories = cage.scratch_sizes(limits) if record.mode == "bubblewrap" else {}
        return {"memory_directories": list(directories)}
    return {
        "memory_bytes": (limits.memory_mb + (limits.disk_mb or 0)) * _MB,
        "memory_stat_fd": cage.STAT_FD,
        "command_group_fds": [cage.PROCS_FD],
    }


def _landlock_task(machine: Machine, record: BoxRecord) -> dict[str, Any] | None:
    if record.mode != "bubblewrap" or machine.landlock < landlock.LEAST_ABI:
        return None
    grants = [grant.path for grant in record.spec.grants if not grant.read_only]
    scratch = cage.scratch_sizes(record.spec.limits)
    return {
        "abi": machine.landlock,
        "write": [record.root, *grants, *scratch],
        "change": ["/dev", "/proc"],
    }


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


def _listen_tcp() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
