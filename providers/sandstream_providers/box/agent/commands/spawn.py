"""Starting a process without fork: posix_spawn takes a fraction of a millisecond.

The working directory is the loop thread's business: it is changed before each start, and nothing
else in this program uses relative paths. Every process is marked with the number of its command.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import struct

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.commands import tree
from sandstream_providers.box.agent.refused import Refused

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Callable


DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
TIOCSWINSZ = 0x5414
RESET = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT]
EXPENDABLE = "500"
OUT_OF_PROCESSES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Program:
    """A program to start. In some boxes another process starts it for the agent."""

    __slots__ = ("argv", "cwd", "env", "number", "path", "streams", "terminal")

    def __init__(
        self, path: bytes, argv: list[bytes], cwd: bytes, env: dict[bytes, bytes], number: int
    ) -> None:
        self.path = path
        self.argv = argv
        self.cwd = cwd
        self.env = env
        self.number = number
        self.terminal = ""
        """The name of the terminal that all three streams are, or:"""
        self.streams: tuple[int, ...] = ()


class Started:
    """A process and the agent's ends of its streams. With a terminal all three are one."""

    __slots__ = ("pid", "stderr", "stdin", "stdout")

    def __init__(self, pid: int, stdin: int | None, stdout: int, stderr: int | None) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


def can_mark() -> bool:
    """Is the limit that marks processes free? Some systems lack it, and some already use it."""
    return (
        hasattr(resource, "prlimit")
        and resource.getrlimit(tree.MARK_LIMIT)[1] == resource.RLIM_INFINITY
    )


def start(
    argv: list[bytes],
    cwd: bytes,
    env: dict[bytes, bytes],
    tty: bool,
    want_stdin: bool,
    number: int,
    launch: Callable[[Program], int],
) -> Started:
    """Start a program in a new session. Raises Refused: CannotExecute or LimitReached."""
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
    fds: list[int] = []
    try:
        path = _find(argv[0], env.get(b"PATH", DEFAULT_PATH))
        program = Program(path, argv, cwd, env, number)
        return (_start_in_terminal if tty else _start_with_pipes)(program, want_stdin, fds, launch)
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


def launch_here(program: Program) -> int:
    """As a child of this process, in its working directory. The mark is there before the program
    can fork: as the soft limit of this process, which becomes the child's, and is then fixed.
    """
    if program.terminal:
        # A session leader without a terminal that opens one gets it as its controlling terminal.
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, program.terminal, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(program.streams)]
    if program.number != tree.UNMARKED:
        resource.setrlimit(tree.MARK_LIMIT, (program.number, resource.RLIM_INFINITY))
    pid = os.posix_spawn(
        program.path,
        program.argv,
        program.env,
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=RESET,
    )
    if program.number != tree.UNMARKED:
        try:
            resource.prlimit(pid, tree.MARK_LIMIT, (program.number, program.number))
        except (ProcessLookupError, PermissionError):
            pass  # it has ended, or lowered the limit itself
    return pid


def launch_expendable(program: Program) -> int:
    """As :func:`launch_here`, for an agent that shares a limit of memory with its commands: the
    kernel is to end a command and not the agent, with which all commands would end.
    """
    pid = launch_here(program)
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w") as file:
            file.write(EXPENDABLE)
    except OSError:
        pass  # it has ended, or is another user: the kernel decides by its size
    return pid


def _start_with_pipes(
    program: Program, want_stdin: bool, fds: list[int], launch: Callable[[Program], int]
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
    program.streams = (in_read, out_write, err_write)
    pid = launch(program)
    for fd in (out_read, err_read, stdin):
        if fd is not None:
            fds.remove(fd)
            os.set_blocking(fd, False)
    return Started(pid, stdin, out_read, err_read)


def _start_in_terminal(
    program: Program, want_stdin: bool, fds: list[int], launch: Callable[[Program], int]
) -> Started:
    ours, theirs = os.openpty()
    fds += (ours, theirs)
    fcntl.ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    program.terminal = os.ttyname(theirs)
    pid = launch(program)
    fds.remove(ours)
    os.set_blocking(ours, False)
    return Started(pid, ours, ours, None)
