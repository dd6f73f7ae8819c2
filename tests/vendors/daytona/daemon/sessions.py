"""Sessions: long-lived shells that run commands one after the other.

A command is sourced by the shell of its session, so it can change directory and variables for the
next one, and can end the shell. Its output is labelled line by line in one log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vendors.daytona.daemon import pipes
from vendors.daytona.daemon.kills import signal_tree
from vendors.daytona.refusals import Refusal

if TYPE_CHECKING:
    from vendors.daytona.daemon.daemon import Daemon
    from vendors.machine import Process

STDOUT = b"\x01\x01\x01"
STDERR = b"\x02\x02\x02"
MARKS = re.compile(rb"(\x01\x01\x01|\x02\x02\x02)")
GRACE_S = 5.0
LAST_WORDS_S = 1.0
"""How long output is still read that a background process of an ended shell may write."""


class Command:
    """One command of a session, and its log."""

    def __init__(self, text: str, session: Path, *, suppress_echo: bool) -> None:
        self.id = str(uuid.uuid4())
        self.text = text
        self.folder = session / self.id
        self.folder.mkdir()
        (self.folder / "cmd.sh").write_text(text)
        self.log = self.folder / "output.log"
        self.log.touch()
        self.suppress_echo = suppress_echo
        self.exit_code: int | None = None
        self.over = asyncio.Event()
        """Set when its exit code is known, or never will be."""
        self.input: int | None = None
        """The named pipe of its input, held open so that the command does not see its end."""
        self._grown = asyncio.Event()

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "command": self.text}
        if self.exit_code is not None:
            found["exitCode"] = self.exit_code
        return found

    def append(self, mark: bytes, lines: list[bytes]) -> None:
        """Add lines to the log. On their way a shell reads them, which loses zero bytes."""
        with self.log.open("ab") as log:
            log.write(b"".join(mark + line.replace(b"\0", b"") + b"\n" for line in lines))
        self.wake()

    def wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def read_from(self, offset: int) -> bytes:
        """What the log has from this byte on. Waits for more; nothing means that it is complete."""
        while True:
            grown, over = self._grown, self.over.is_set()
            with self.log.open("rb") as log:
                log.seek(offset)
                if found := log.read():
                    return found
            if over:
                return b""
            await grown.wait()

    def finish(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        self.over.set()
        self.wake()
        if self.input is not None:
            os.close(self.input)
            self.input = None


class Session:
    """One shell and the commands that it was given."""

    def __init__(self, id_: str, folder: Path, inside: str, daemon: Daemon) -> None:
        self.id = id_
        self.folder = folder
        self.commands: dict[str, Command] = {}
        self.ended = asyncio.Event()
        self._inside = inside
        self._daemon = daemon
        self._shell: Process | None = None
        self._stdin: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        source, target = os.pipe()
        try:
            self._shell = await self._daemon.spawn([self._daemon.shell], stdin=source)
        finally:
            os.close(source)
        self._stdin = await pipes.writer(target)
        self._task(self._watch(self._shell))

    async def run(self, text: str, *, wait: bool, suppress_echo: bool) -> Command:
        """Give the shell a command. It begins when the commands before it have ended.

        Raises:
            Refusal: the shell has ended (410).
        """
        if self.ended.is_set():
            raise Refusal(410, "session process has exited", "SESSION_ENDED")
        command = Command(text, self.folder, suppress_echo=suppress_echo)
        self.commands[command.id] = command
        streams = [
            await pipes.named_reader(command.folder / name) for name in ("out", "err", "status")
        ]
        source = "/dev/null"
        if not wait:
            os.mkfifo(command.folder / "input.pipe", 0o600)
            command.input = os.open(command.folder / "input.pipe", os.O_RDWR | os.O_NONBLOCK)
            source = f"{self._inside}/{command.id}/input.pipe"
        self._task(self._collect(command, streams))
        inside = {name: shlex.quote(f"{self._inside}/{command.id}/{name}") for name in _PIPES}
        script = (
            f"{{ . {inside['cmd.sh']}; }} < {shlex.quote(source)} "
            f"> {inside['out']} 2> {inside['err']}; echo $? > {inside['status']}\n"
        )
        assert self._stdin is not None
        with contextlib.suppress(ConnectionError):
            self._stdin.write(script.encode())
            await self._stdin.drain()
        if wait:
            await self._over(command)
        return command

    def get(self, command_id: str) -> Command:
        if found := self.commands.get(command_id):
            return found
        raise Refusal(404, "command not found")

    def send(self, command: Command, data: str) -> None:
        """Write a line to the input of a running command.

        Raises:
            Refusal: the command or the shell has ended (410).
        """
        if command.exit_code is not None:
            message = f"command has already completed with exit code {command.exit_code}"
            raise Refusal(410, message, "COMMAND_ALREADY_COMPLETED")
        if self.ended.is_set() or command.input is None:
            raise Refusal(410, "session process has exited", "SESSION_ENDED")
        line = data if data.endswith("\n") else data + "\n"
        try:
            os.write(command.input, line.encode())
        except BlockingIOError:
            raise Refusal(500, "failed to write to input pipe: it is full") from None
        if not command.suppress_echo:
            with command.log.open("ab") as log:
                log.write(STDOUT + line.encode())
            command.wake()

    async def delete(self) -> None:
        """End the shell, its group and its descendants; first kindly, then not."""
        assert self._shell is not None
        if not self.ended.is_set():
            await signal_tree(self._daemon, self._shell.pid, "TERM")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), GRACE_S)
        if not self.ended.is_set():
            await signal_tree(self._daemon, self._shell.pid, "KILL")
            await self.ended.wait()
        await self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def close(self) -> None:
        self.ended.set()
        for command in self.commands.values():
            if not command.over.is_set():
                command.finish(None)
        if self._stdin is not None:
            self._stdin.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _over(self, command: Command) -> None:
        """Wait for the exit code.

        Raises:
            Refusal: the shell ended first (410), unless this is an older daemon.
        """
        while command.exit_code is None:
            if self.ended.is_set() and command.over.is_set():
                if self._daemon.settings.dead_session_hangs:
                    await self._daemon.ended.wait()
                raise Refusal(410, "session has ended", "SESSION_ENDED")
            await command.over.wait()

    async def _collect(
        self,
        command: Command,
        streams: list[tuple[asyncio.StreamReader, asyncio.ReadTransport]],
    ) -> None:
        """Label the output and wait for the status. All holders of the output must have closed it
        before the command is over, as far as a client can see.
        """
        (out, _), (err, _), (status, _) = streams
        try:
            labels = asyncio.gather(_label(command, STDOUT, out), _label(command, STDERR, err))
            said = await _first(status.readline(), self.ended.wait())
            if isinstance(said, bytes) and said:
                await labels
                command.finish(int(said))
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(labels, LAST_WORDS_S)
                command.finish(None)
        finally:
            for _, transport in streams:
                transport.close()

    async def _watch(self, shell: Process) -> None:
        await shell.wait()
        self.ended.set()

    def _task(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_PIPES = ("cmd.sh", "out", "err", "status")


class Sessions:
    """All sessions of a running box."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.all: dict[str, Session] = {}

    async def create(self, id_: str) -> None:
        """Start a shell.

        Raises:
            Refusal: there is a session with this id (409), or the id is reserved (400).
        """
        if id_ == "entrypoint":
            raise Refusal(400, "provided session ID is reserved and cannot be created/overridden")
        if id_ in self.all:
            raise Refusal(409, "session already exists")
        name = id_ if re.fullmatch(r"[\w-][\w.-]*", id_) else quote(id_, safe="")
        inside = f"{self._daemon.config_dir}/sessions/{name}"
        folder = self._daemon.machine.path(inside)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        session = Session(id_, folder, inside, self._daemon)
        self.all[id_] = session
        await session.start()

    def get(self, id_: str) -> Session:
        if found := self.all.get(id_):
            return found
        raise Refusal(404, "session not found")

    async def delete(self, id_: str) -> None:
        session = self.get(id_)
        await session.delete()
        self.all.pop(id_, None)

    async def close(self) -> None:
        for session in self.all.values():
            await session.close()


def split(log: bytes) -> tuple[bytes, bytes]:
    """The two streams of a log. What comes before the first mark belongs to neither."""
    streams: dict[bytes, list[bytes]] = {STDOUT: [], STDERR: []}
    parts = MARKS.split(log)
    for mark, content in zip(parts[1::2], parts[2::2], strict=True):
        streams[mark].append(content)
    return b"".join(streams[STDOUT]), b"".join(streams[STDERR])


async def _label(command: Command, mark: bytes, stream: asyncio.StreamReader) -> None:
    """Add every line with its mark. The last one gains a newline if it has none."""
    begun: list[bytes] = []
    while chunk := await stream.read(pipes.CHUNK):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*begun, lines[0]])
            command.append(mark, lines)
            begun.clear()
        if rest:
            begun.append(rest)
    if begun:
        command.append(mark, [b"".join(begun)])


async def _first(*works: Any) -> object:
    """The result of the first to finish; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
