"""A process that starts commands, where they have a control group of their own.

A group that is full of memory costs processes in it their lives. So the agent is not in it; and
since a process begins in the group of its parent, one that is in it must start the
commands. To move each of them there would take longer than to run it, and one that forks at once
would get away.

It is a copy of the agent that does nothing else. It may be killed by commands, or with them: then
what it had started becomes the agent's own, and the next command gets a new one.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import socket
import struct
import sys

from sandstream_providers.box.agent.commands import spawn, tree
from sandstream_providers.box.agent.commands.spawn import Program
from sandstream_providers.box.agent.loop import READ, Loop

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence


PATIENCE_S = 5.0
"""For an answer: a command may have stopped the spawner."""
MOST_FDS = 1 << 16
STREAMS = 3
LENGTH = struct.Struct("=I")
FD = struct.Struct("=i")
GONE = (EOFError, ConnectionError, socket.timeout)


class Spawner:
    """The agent's side. ``groups``: open files that a process joins its groups by."""

    def __init__(self, loop: Loop, groups: Sequence[int], exited: Callable[[int, int], None]):
        self._loop = loop
        self._groups = groups
        self._exited = exited
        self._socket: socket.socket | None = None
        self._pid = 0
        self._ended: list[tuple[int, int]] = []
        """Told while an answer was awaited."""

    def launch(self, program: Program) -> int:
        """Raises OSError, as starting it here would."""
        for _ in range(2):
            try:
                return self._asked(program)
            except GONE:
                self._give_up()
            # It may have been killed by the very command that it had just started.
            pid = tree.leader(program.number)
            if pid is not None:
                return pid
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def start(self) -> None:
        """Raises OSError if there can be no more processes."""
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(theirs.detach(), self._groups)
        theirs.close()
        tree.helpers.add(self._pid)
        ours.settimeout(PATIENCE_S)
        self._socket = ours
        self._loop.watch(ours.fileno(), READ, self._told)

    def _asked(self, program: Program) -> int:
        if self._socket is None:
            self.start()
        link = self._socket
        assert link is not None
        what = (program.path, program.argv, program.cwd, program.env, program.number)
        _send(link, (what, program.terminal), program.streams)
        while True:
            kind, *facts = _receive(link)[0]
            if kind == "started":
                return int(facts[0])
            if kind == "failed":
                raise OSError(*facts)
            self._note(facts)

    def _note(self, facts: list[int]) -> None:
        if not self._ended:
            self._loop.post(self._tell)
        self._ended.append((facts[0], facts[1]))

    def _tell(self) -> None:
        """Later: of a command that has ended already, the start must be known first."""
        ended, self._ended = self._ended, []
        for pid, code in ended:
            self._exited(pid, code)

    def _told(self, _events: int) -> None:
        link = self._socket
        if link is None:
            return
        try:
            _, *facts = _receive(link)[0]
        except GONE:
            self._give_up()
        else:
            self._note(facts)

    def _give_up(self) -> None:
        """What it had started is left to the agent, which hears of the end by itself."""
        link, self._socket = self._socket, None
        if link is None:
            return
        self._loop.unwatch(link.fileno())
        link.close()
        if self._pid in tree.helpers:  # else it is gone, and others may have its number
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            tree.helpers.discard(self._pid)
        self._loop.post(self._loop.on_child)


def _serve(link: int, groups: Sequence[int]) -> None:
    """The other side; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for group in groups:
            os.write(group, b"0")
        os.closerange(STREAMS, link)
        os.closerange(link + 1, MOST_FDS)
        _Server(socket.socket(fileno=link)).run()
    except EOFError:
        pass  # the agent has ended, or wants another one
    except BaseException as error:  # noqa: BLE001 - it is reported on stderr
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(0)


class _Server:
    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._woken, wake = os.pipe()
        for fd in (self._woken, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        ready = select.poll()
        ready.register(self._link, select.POLLIN)
        ready.register(self._woken, select.POLLIN)
        while True:
            for fd, _ in ready.poll():
                if fd == self._woken:
                    os.read(fd, 4096)
                    self._reap()
                else:
                    self._start()

    def _start(self) -> None:
        (what, terminal), fds = _receive(self._link)
        program = Program(*what)
        program.terminal, program.streams = terminal, tuple(fds)
        try:
            os.chdir(program.cwd)
            answer: tuple[Any, ...] = ("started", spawn.launch_here(program))
        except OSError as error:
            answer = ("failed", error.errno, error.strerror)
        finally:
            os.chdir("/")
            for fd in fds:
                os.close(fd)
        _send(self._link, answer, ())

    def _reap(self) -> None:
        """Tell of an end before it is collected: killed in between, another can collect it."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            whole = ended.si_code == os.CLD_EXITED
            code = ended.si_status if whole else 128 + ended.si_status
            _send(self._link, ("ended", ended.si_pid, code), ())
            os.waitpid(ended.si_pid, 0)


def _send(link: socket.socket, message: Any, fds: Sequence[int]) -> None:
    data = marshal.dumps(message)
    head = LENGTH.pack(len(data))
    if fds:
        rights = b"".join(map(FD.pack, fds))
        link.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        link.sendall(data)
    else:
        link.sendall(head + data)


def _receive(link: socket.socket) -> tuple[Any, list[int]]:
    """Raises EOFError if the other side is gone."""
    room = socket.CMSG_SPACE(STREAMS * FD.size)
    head, extra, _, _ = link.recvmsg(LENGTH.size, room, socket.MSG_CMSG_CLOEXEC)
    fds = [fd for *_, rights in extra for (fd,) in FD.iter_unpack(rights)]
    (size,) = LENGTH.unpack(_exactly(link, head, LENGTH.size))
    return marshal.loads(_exactly(link, b"", size)), fds


def _exactly(link: socket.socket, data: bytes, size: int) -> bytes:
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
