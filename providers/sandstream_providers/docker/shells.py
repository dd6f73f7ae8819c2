"""Scripts in a container without an agent: shells that stay, since each start of one is slow.

A shell that stays reads its scripts from its input. After each one it writes a mark to both of its
output streams, which no script can know beforehand. Much data goes to an execution of its own.
"""

from __future__ import annotations

import base64
import secrets
import shlex
import threading
import time

from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineConflict, NoSuchContainer
from sandstream_providers.docker.streams import STDERR, STDOUT, Execution
from sandstream_providers.interface import BoxGone
from sandstream_providers.shell.channel import Answer

SHELL = "/bin/sh"
_MOST_DATA = 96 * 1024
_MOST_IDLE = 4
_ONCE = 'read -r _; exec /bin/sh -c "$0"'
_MOST_SCRIPT = 96 * 1024
"""One argument of a program holds 128 KiB."""


class ExecShell:
    """Implements :class:`sandstream_providers.shell.channel.Shell`."""

    def __init__(self, engine: Engine, key: str, container: str, user: str) -> None:
        self._engine = engine
        self._key = key
        self._container = container
        self._user = user
        self._idle: list[_Staying] = []
        self._closed = False

    async def run(self, script: str, data: bytes = b"", *, timeout_s: float = 30.0) -> Answer:
        text = script.encode(errors="surrogateescape")
        if len(data) > _MOST_DATA and len(text) <= _MOST_SCRIPT:
            execution = await self._executed([SHELL, "-c", _ONCE, script])
            return await self._engine.in_thread(lambda: _run_once(execution, data, timeout_s))
        shell = self._idle.pop() if self._idle else _Staying(await self._executed([SHELL]))
        try:
            answer = await self._engine.in_thread(lambda: shell.run(text, data, timeout_s))
        except BaseException:
            shell.close()  # also if the caller gave up: no request waits for the answer
            raise
        if self._closed or len(self._idle) >= _MOST_IDLE:
            shell.close()
        else:
            self._idle.append(shell)
        return answer

    async def _executed(self, argv: list[str]) -> Execution:
        doing = f"run a script in the container of sandbox {self._key}"
        try:
            return await self._engine.call(
                doing, lambda api: Execution(api, self._container, argv, self._user)
            )
        except NoSuchContainer as error:
            raise BoxGone(f"sandbox {self._key} is gone: {error}") from error
        except EngineConflict as error:
            if "paused" in str(error):
                raise ConnectionError(str(error)) from error
            raise BoxGone(f"sandbox {self._key} does not run: {error}") from error

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()


def _run_once(execution: Execution, data: bytes, timeout_s: float) -> Answer:
    """In a thread, as all below."""
    said = {STDOUT: bytearray(), STDERR: bytearray()}
    sender = threading.Thread(target=_send, args=(execution, data), daemon=True)
    try:
        sender.start()
        deadline = time.monotonic() + timeout_s
        while True:
            execution.set_timeout(max(0.01, deadline - time.monotonic()))
            kind, part = execution.frame()
            if not part:
                break
            said[kind] += part
        code = execution.exit_code()
    finally:
        execution.close()
        sender.join()
    return Answer(code=code, stdout=bytes(said[STDOUT]), stderr=bytes(said[STDERR]))


def _send(execution: Execution, data: bytes) -> None:
    try:
        execution.send(b"\n" + data)
        execution.end_input()
    except OSError:
        return  # the reader sees the end of the stream


class _Staying:
    """A shell that has been started. One script at a time."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def run(self, script: bytes, data: bytes, timeout_s: float) -> Answer:
        mark = secrets.token_hex(16).encode()
        quoted = shlex.quote(script.decode(errors="surrogateescape")).encode(
            errors="surrogateescape"
        )
        line = b"( eval " + quoted + b" )"
        if data:
            line = b"printf %s " + base64.b64encode(data) + b" | base64 -d | " + line
        else:
            line += b" </dev/null"
        # stdout has the exit code after its mark
        line += b'; printf "\\n%s %s\\n" ' + mark + b' "$?"; printf "\\n%s" ' + mark + b" >&2\n"
        self._execution.set_timeout(timeout_s)
        self._execution.send(line)
        out, err = bytearray(), bytearray()
        end, wanted = b"\n" + mark, b"\n" + mark + b" "
        deadline = time.monotonic() + timeout_s
        while not (_has(out, wanted, b"\n") and err.endswith(end)):
            self._execution.set_timeout(max(0.01, deadline - time.monotonic()))
            kind, part = self._execution.frame()
            if not part:
                raise ConnectionResetError("the shell of the sandbox has ended")
            (out if kind == STDOUT else err).extend(part)
        text, _, code = bytes(out).rpartition(wanted)
        return Answer(code=int(code), stdout=text, stderr=bytes(err[: -len(end)]))

    def close(self) -> None:
        self._execution.close()


def _has(text: bytearray, mark: bytes, end: bytes) -> bool:
    """The mark is at the end, with the code and the end of its line."""
    return text.endswith(end) and text.rfind(mark, max(0, len(text) - len(mark) - 8)) >= 0
