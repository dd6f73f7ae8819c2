"""Starting a process without fork: posix_spawn takes a fraction of a millisecond.

The working directory is the loop thread's business: it is changed before each start, and nothing
else in this program uses relative paths.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.refused import Refused

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
TIOCSWINSZ = 0x5414
RESET = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT]
OUT_OF_PROCESSES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Started:
    """A process and the agent's ends of its streams. With a terminal all three are one."""

    __slots__ = ("pid", "stderr", "stdin", "stdout")

    def __init__(self, pid: int, stdin: int | None, stdout: int, stderr: int | None) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


def start(
    argv: list[bytes], cwd: bytes, env: dict[bytes, bytes], tty: bool, want_stdin: bool
) -> Started:
    """In a new session. Raises Refused: CannotExecute or LimitReached."""
    if not argv or not argv[0]:
        raise Refused("CannotExecute", "no program was given: the command is empty")
    try:
        os.chdir(cwd)
    except OSError as error:
        raise Refused(
            "CannotExecute",
            f"the working directory {wire.to_text(cwd)} cannot be used: {error.strerror}",
            reason="cwd",
        ) from error
    program = _find(argv[0], env.get(b"PATH", DEFAULT_PATH))
    fds: list[int] = []
    try:
        return (_start_in_terminal if tty else _start_with_pipes)(
            program, argv, env, want_stdin, fds
        )
    except OSError as error:
        raise _refusal(error, argv[0]) from error
    except ValueError as error:
        raise Refused("CannotExecute", f"the command cannot be passed on: {error}") from error
    finally:
        for fd in fds:
            os.close(fd)
        os.chdir(b"/")


def _refusal(error: OSError, program: bytes) -> Refused:
    name = wire.to_text(program)
    if error.errno in OUT_OF_PROCESSES:
        return Refused(
            "LimitReached",
            f"cannot start {name}: {error.strerror} (the sandbox's limit of processes or files)",
        )
    return Refused("CannotExecute", f"cannot start {name}: {error.strerror}", reason="program")


def _find(name: bytes, search: bytes) -> bytes:
    if b"/" in name:
        return name
    refused = False
    for folder in search.split(b":"):
        candidate = os.path.join(folder or b".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
        refused = refused or os.path.isfile(candidate)
    raise Refused(
        "CannotExecute",
        "no program {} {} in PATH".format(
            wire.to_text(name), "that may be executed is" if refused else "is"
        ),
        reason="program",
    )


def _spawn(program: bytes, argv: list[bytes], env: dict[bytes, bytes], actions: list[Any]) -> int:
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=RESET,
    )


def _start_with_pipes(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], want_stdin: bool, fds: list[int]
) -> Started:
    out_read, out_write = os.pipe()
    fds += (out_read, out_write)
    err_read, err_write = os.pipe()
    fds += (err_read, err_write)
    stdin = None
    if want_stdin:
        in_read, stdin = os.pipe()
        fds += (in_read, stdin)
    else:
        in_read = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        fds.append(in_read)
    actions = [
        (os.POSIX_SPAWN_DUP2, in_read, 0),
        (os.POSIX_SPAWN_DUP2, out_write, 1),
        (os.POSIX_SPAWN_DUP2, err_write, 2),
    ]
    pid = _spawn(program, argv, env, actions)
    for fd in (out_read, err_read, stdin):
        if fd is not None:
            fds.remove(fd)
            os.set_blocking(fd, False)
    return Started(pid, stdin, out_read, err_read)


def _start_in_terminal(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], want_stdin: bool, fds: list[int]
) -> Started:
    ours, theirs = os.openpty()
    fds += (ours, theirs)
    fcntl.ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    # A session leader without a terminal that opens one gets it as its controlling terminal.
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.ttyname(theirs), os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
    ]
    pid = _spawn(program, argv, env, actions)
    fds.remove(ours)
    os.set_blocking(ours, False)
    return Started(pid, ours, ours, None)
