"""The processes of one boot of a box, as its daemon knows them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from vendors.box_files import PROGRAMS
from vendors.e2b.box_process import BoxProcess
from vendors.e2b.connect_rpc import RpcError
from vendors.e2b.output import Event
from vendors.e2b.settings import Settings
from vendors.e2b.users import User
from vendors.machine import Machine, SpawnFailed

_PATH = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{PROGRAMS}"
_WRAPPER = ["/bin/sh", "-c", 'exec "${@}"', "--"]
"""The vendor starts every command through a shell, so a missing program is an exit code (127)."""


class ProcessTable:
    """Started processes by id, and for a while the ends of those that are gone."""

    def __init__(self, machine: Machine, environment: dict[str, str], settings: Settings) -> None:
        self._machine = machine
        self._environment = environment
        self._settings = settings
        self._running: dict[int, BoxProcess] = {}
        self._ended: dict[int, tuple[str | None, Event]] = {}

    @property
    def running(self) -> list[BoxProcess]:
        return list(self._running.values())

    async def start(self, request: dict[str, Any], user: User) -> BoxProcess:
        """Start a process. Raises :class:`RpcError`.

        Its output is not read before :meth:`begin`, so a client that follows misses nothing.
        """
        config = request["process"]
        cwd = user.resolved(config.get("cwd", ""))
        try:
            exists = self._machine.path(cwd).exists()
        except OSError:
            exists = False
        if not exists:
            raise RpcError("invalid_argument", f"cwd '{cwd}' does not exist")
        tag = request.get("tag")
        box_process = await self._spawn(request, config, user, cwd, tag)
        self._ended.pop(box_process.pid, None)
        if tag is not None:
            self._ended = {pid: end for pid, end in self._ended.items() if end[0] != tag}
        self._running[box_process.pid] = box_process
        return box_process

    def begin(self, box_process: BoxProcess, timeout_s: float | None) -> None:
        box_process.begin(timeout_s, self._keep_end)

    def find(self, selector: dict[str, Any]) -> BoxProcess:
        """The running process for a selector (pid or tag)."""
        if "pid" in selector:
            if selector["pid"] in self._running:
                return self._running[selector["pid"]]
            raise RpcError("not_found", f"process with pid {selector['pid']} not found")
        if "tag" in selector:
            for box_process in self._running.values():
                if box_process.tag == selector["tag"]:
                    return box_process
            raise RpcError("not_found", f"process with tag {selector['tag']} not found")
        raise RpcError("unimplemented", "invalid input type *process.ProcessSelector")

    def find_ended(self, selector: dict[str, Any]) -> tuple[int, Event] | None:
        """How a process ended, if that was not long ago."""
        for pid, (tag, event) in self._ended.items():
            if pid == selector.get("pid") or (tag is not None and tag == selector.get("tag")):
                return pid, event
        return None

    def hold(self) -> None:
        for box_process in self._running.values():
            box_process.hold()

    def go_on(self) -> None:
        for box_process in self._running.values():
            box_process.go_on()

    def _keep_end(self, box_process: BoxProcess, event: Event) -> None:
        if self._running.get(box_process.pid) is not box_process:
            return
        kept = (box_process.tag, event)
        self._ended[box_process.pid] = kept
        del self._running[box_process.pid]
        loop = asyncio.get_running_loop()
        loop.call_later(self._settings.exit_kept_s, self._forget, box_process.pid, kept)

    def _forget(self, pid: int, kept: tuple[str | None, Event]) -> None:
        if self._ended.get(pid) is kept:
            del self._ended[pid]

    async def _spawn(
        self, request: dict[str, Any], config: dict[str, Any], user: User, cwd: str, tag: str | None
    ) -> BoxProcess:
        argv = [*_WRAPPER, config.get("cmd", ""), *config.get("args", [])]
        environment = {"PATH": _PATH, "HOME": user.home, "USER": user.name, "LOGNAME": user.name}
        environment |= self._environment | config.get("envs", {})
        theirs: dict[str, int] = {}
        ours: dict[str, int] = {}
        pty = request.get("pty")
        if pty is None:
            for name in ("stdout", "stderr"):
                ours[name], theirs[name] = os.pipe()
            if request.get("stdin", True):
                theirs["stdin"], ours["stdin"] = os.pipe()
        size = (pty or {}).get("size", {})
        try:
            process = await self._machine.spawn(
                argv,
                cwd=cwd,
                env=environment,
                stdin=theirs.get("stdin", -1),
                stdout=theirs.get("stdout", -1),
                stderr=theirs.get("stderr", -1),
                pty=pty is not None,
                size=(size.get("rows", 0), size.get("cols", 0)),
                group="inherited",
                privileged=user.privileged,
            )
        except SpawnFailed as error:
            for fd in ours.values():
                os.close(fd)
            command = " ".join(argv[len(_WRAPPER) :])
            problem = f"fork/exec /bin/sh: {(error.strerror or '').lower()}"
            text = f"error starting process '{command}': {problem}"
            raise RpcError("invalid_argument", text) from None
        finally:
            for fd in theirs.values():
                os.close(fd)
        stdin = ours.pop("stdin", None)
        return BoxProcess(process, config=config, tag=tag, stdin=stdin, outputs=ours)
