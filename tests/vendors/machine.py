"""One vendor box as files and processes: bubblewrap around a supervisor that starts processes.

A machine has its own process, mount, ipc and host-name namespaces and the network of the host.
It knows nothing of vendors: what a stop, a pause or an expiry means is decided by its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vendors.box_files import BoxFiles
from vendors.bubblewrap import LOG, launch

Group = Literal["session", "own", "inherited"]
_PACKET_BYTES = 65_536
_START_S = 20.0


class MachineFailed(Exception):
    """The machine did not start; the text is what bubblewrap said."""


class SpawnFailed(OSError):
    """A process did not start. ``stage`` is ``cwd`` or ``exec``."""

    def __init__(self, stage: str, number: int, subject: str) -> None:
        super().__init__(number, os.strerror(number), subject)
        self.stage = stage


class Process:
    """A process of a machine."""

    def __init__(self, machine: Machine, pid: int, terminal: int | None) -> None:
        self.pid = pid
        """As the box sees it."""
        self.terminal = terminal
        """The controlling end of its terminal; the caller reads, writes and closes it."""
        self._machine = machine
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; ``None`` while it runs."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Wait for its end, which is the end of the process itself, not of its output."""
        return await asyncio.shield(self._ended)

    async def signal(self, number: int, group: bool = False) -> bool:
        """Send a signal to the process, or to its process group. False: it is gone."""
        if self._ended.done():
            return False
        return await self._machine._signal(self.pid, number, whole_group=group)

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


class Machine:
    """A running box. Start one with :meth:`start`; the caller stops it."""

    def __init__(self, files: BoxFiles, control: socket.socket, child: subprocess.Popen[bytes]):
        self.files = files
        self._control = control
        self._child = child
        self._processes: dict[int, Process] = {}
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._requests = 0
        self._stopped = False

    @classmethod
    async def start(
        cls,
        directory: Path,
        *,
        home: str = "/home/user",
        user: str = "user",
        extra_dirs: Iterable[str] = (),
        python: bool = True,
        sudo: bool = False,
        hostname: str = "box",
    ) -> Machine:
        """Start a machine with the files in ``directory``, or with new ones if there are none.

        Every start is a boot: the machine gets a new boot id and process ids begin again.

        Args:
            extra_dirs: Further directories that the user of the box may write to.
            python: False hides every Python of the host from the box's search path.
            sudo: Its user may become root without a password.
        """
        files = BoxFiles(directory, home=home, user=user)
        files.create(extra_dirs)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            child = launch(
                files, hostname=hostname, python=python, sudo=sudo, control=theirs.fileno()
            )
        ours.setblocking(False)
        machine = cls(files, ours, child)
        loop = asyncio.get_running_loop()
        try:
            ready = await asyncio.wait_for(loop.sock_recv(ours, _PACKET_BYTES), _START_S)
        except TimeoutError:
            ready = b""
        if not ready:
            ours.close()
            child.kill()
            await asyncio.to_thread(child.wait)
            raise MachineFailed((directory / LOG).read_text(errors="replace"))
        loop.add_reader(ours.fileno(), machine._receive)
        return machine

    @property
    def running(self) -> bool:
        """Whether the machine has been started and neither stopped nor died."""
        return not self._stopped

    def path(self, inside: str, *, follow: bool = True, write: bool = False) -> Path:
        """The host's path for an absolute path of the box; see :meth:`BoxFiles.path`."""
        return self.files.path(inside, follow=follow, write=write)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        stdin: int = -1,
        stdout: int = -1,
        stderr: int = -1,
        pty: bool = False,
        size: tuple[int, int] = (24, 80),
        group: Group = "session",
        privileged: bool = False,
    ) -> Process:
        """Start a process. The descriptors stay the caller's, -1 is ``/dev/null``.

        Args:
            env: The whole environment of the process.
            pty: Give it a terminal instead of descriptors: :attr:`Process.terminal`.
            size: Rows and columns of the terminal.
            group: Whether it leads a new session or process group.
            privileged: It is root in the box. If the box has one user only, it is that user with
                the right to write everywhere.

        Raises:
            SpawnFailed: The working directory or the program cannot be used.
        """
        details = {
            "argv": list(argv),
            "cwd": cwd,
            "env": dict(env or {}),
            "pty": list(size) if pty else None,
            "group": group,
            "privileged": privileged,
            "root": privileged and self.files.has_users,
        }
        with contextlib.ExitStack() as opened:
            null = os.open(os.devnull, os.O_RDWR)
            opened.callback(os.close, null)
            text = os.memfd_create("task")
            opened.callback(os.close, text)
            with os.fdopen(os.dup(text), "wb") as file:
                file.write(json.dumps(details).encode())
            given = [null if fd == -1 else fd for fd in (stdin, stdout, stderr)]
            answer, _ = await self._ask({"op": "spawn"}, [text, *given])
        if "failed" in answer:
            failed = answer["failed"]
            subject = cwd if failed["stage"] == "cwd" else argv[0]
            raise SpawnFailed(failed["stage"], failed["errno"], subject)
        return self._processes[answer["pid"]]

    async def freeze(self) -> None:
        """Stop every process of the box where it is."""
        await self._signal(-1, signal.SIGSTOP)

    async def thaw(self) -> None:
        """Let every process go on."""
        await self._signal(-1, signal.SIGCONT)

    async def stop(self) -> None:
        """Kill every process; the files stay."""
        if not self._stopped:
            self._finish()
        await asyncio.to_thread(self._child.wait)

    async def remove(self) -> None:
        """Stop it and remove its files."""
        await self.stop()
        await asyncio.to_thread(self.files.remove)

    async def _signal(self, pid: int, number: int, *, whole_group: bool = False) -> bool:
        request = {"op": "signal", "pid": pid, "signal": int(number), "whole_group": whole_group}
        answer, _ = await self._ask(request, [])
        return bool(answer["delivered"])

    async def _ask(
        self, request: dict[str, Any], fds: list[int]
    ) -> tuple[dict[str, Any], list[int]]:
        if self._stopped:
            raise MachineFailed("the machine is stopped")
        self._requests += 1
        number = self._requests
        answer: asyncio.Future[tuple[dict[str, Any], list[int]]]
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        packet = json.dumps(request | {"id": number}).encode()
        while True:
            try:
                socket.send_fds(self._control, [packet], fds)
                break
            except BlockingIOError:
                await asyncio.sleep(0.001)
        return await answer

    def _receive(self) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        if not packet:
            self._finish()
            return
        for fd in fds:
            os.set_inheritable(fd, False)
        answer = json.loads(packet)
        if "ended" in answer:
            self._processes.pop(answer["ended"])._end(answer["code"])
            return
        if "pid" in answer:
            # registered here, because the report of its end may be the very next packet
            pid = answer["pid"]
            self._processes[pid] = Process(self, pid, fds[0] if fds else None)
        self._answers.pop(answer["id"]).set_result((answer, fds))

    def _finish(self) -> None:
        """The supervisor is gone or shall go: with it, every process of the box."""
        self._stopped = True
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(MachineFailed("the machine has stopped"))
        for process in self._processes.values():
            process._end(-signal.SIGKILL)
        self._answers.clear()
        self._processes.clear()
