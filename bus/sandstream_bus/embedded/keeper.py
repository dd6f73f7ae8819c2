"""The keeper: a small process that owns one nats-server and ends it when it is unused.

Owns the server process: starts it, restarts it on the same port when it dies, writes its address to
`server.json`, and stops it a grace period after the last user has ended for any reason. Does
not know the rest of Sandstream: it runs alone (`python -I -S`, standard library only, started by
`keeper_launch.py`). Slow imports happen after the fork, so that nats-server is up soon.

It holds `store.lock` through a descriptor that the starting user locked and handed over, and that
nats-server inherits: a process that can lock it knows that neither is alive. Users hold
`users.lock` shared; the keeper checks that four times a second, and once it is free for the whole
grace period the keeper holds it exclusively until the server has ended.

After its disk was full, nats-server does not write again by itself: once there is space, the keeper
restarts it.

If the keeper itself is killed, Linux kills the server with it (PR_SET_PDEATHSIG). Elsewhere a
guard process waits on a pipe for the keeper's end and then kills the server; only if keeper and
guard are both killed does a server stay behind, and it keeps `store.lock`, so there is never a
second one on its store.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing, contextlib, json, signal, socket: 5 to 15 ms each where it counts
    from typing import Any

POLL_S = 0.25
READY_TIMEOUT_S = 600.0  # a large store takes long to recover; users have their own timeouts
STOP_TIMEOUT_S = 5.0
MAX_QUICK_DEATHS = 8
LOOK_S = 2.0
"""How often to check the free space."""
ASK_S = 60.0
"""How often to ask the server for its health while there is enough space."""
ENOUGH_BYTES = 64 * 1024 * 1024
"""With less free space the server is not restarted."""
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_SIGTERM = 15


class Keeper:
    """Single-threaded on purpose: PDEATHSIG follows the thread that forked."""

    def __init__(self, launch: dict[str, Any]) -> None:
        self.home: str = launch["home"]
        self.command: list[str] = launch["command"]
        self.grace_s: float = launch["grace_s"]
        self.store_fd: int = launch["store_fd"]
        self.report_fd: int = launch["report_fd"]
        self.parent_death_signal: bool = launch["parent_death_signal"]
        self.record_head: str = launch["record_head"]  # the members that do not change, as JSON
        self.version = ""
        self.started_at = ""
        self.port: int = launch["port"]
        self.user: str = launch["user"]
        self.password: str = launch["password"]
        self.server_pid = 0
        self.started_s = 0.0
        self.quick_deaths = 0
        self.stopping = False
        self.wakeup_fd = -1
        self.guard: tuple[int, int] | None = None
        self.users_fd = os.open(self.path("users.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        self.users_seen = 0
        self.idle_since_s: float | None = None
        self.record_stamp: tuple[int, int, int] | None = None
        self.looked_s = self.asked_s = time.monotonic()
        self.was_full = False

    def path(self, name: str) -> str:
        return f"{self.home}/{name}"

    def run(self) -> int:
        self.spawn()
        failure = self.await_ready()
        if failure is not None and self.choose_port():
            self.spawn()  # the port was taken between the check and the start
            failure = self.await_ready()
        if failure is not None:
            self.say(f"start failed: {failure}")
            os.close(self.store_fd)  # the user may retry at once
            self.report(failure)
            return 1
        self.report("")
        self.listen_to_signals()
        self.watch()
        return 0

    def report(self, failure: str) -> None:
        """Report a failure, or success, to the user that started us."""
        try:
            os.write(self.report_fd, failure.encode() or b"\0")
        except OSError:
            self.say("the process that requested the server has ended")
        os.close(self.report_fd)
        self.report_fd = -1

    def say(self, text: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.write(2, f"[keeper {os.getpid()}] {now} {text}\n".encode(errors="replace"))

    # -- the server process

    def spawn(self) -> None:
        for name in os.listdir(self.path("ports")):  # noqa: PTH208  pathlib is slow to import
            os.unlink(self.path(f"ports/{name}"))  # noqa: PTH108
        command = [*self.command, "-p", str(self.port)]
        prctl = _prctl() if self.parent_death_signal else None
        keeper_pid = os.getpid()
        self.started_s = time.monotonic()
        self.started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.server_pid = os.fork()
        if self.server_pid == 0:
            try:
                if prctl is not None:
                    prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
                if os.getppid() == keeper_pid:
                    os.execv(command[0], command)
            except OSError as error:
                self.say(f"cannot run {command[0]}: {error.strerror}")
            finally:
                os._exit(127)
        if prctl is None:
            self.start_guard()

    def reap(self, *, wait: bool = False) -> int | None:
        """The server's exit status if it has ended (negative: its signal), else None."""
        try:
            pid, status = os.waitpid(self.server_pid, 0 if wait else os.WNOHANG)
        except ChildProcessError:  # we were started with SIGCHLD ignored: the status is unknown
            pid, status = self.server_pid, 0
        if pid == 0:
            return None
        self.server_pid = 0
        self.end_guard()
        return os.waitstatus_to_exitcode(status)

    def await_ready(self) -> str | None:
        """None once the server listens and `server.json` has its address; else the failure.

        nats-server writes its ports file last, when JetStream has recovered and clients may
        connect.
        """
        program = self.command[0].rpartition("/")[2]
        ports_file = self.path(f"ports/{program}_{self.server_pid}.ports")
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while True:
            status = self.reap()
            if status is not None:
                return f"it ended with status {status}"
            port = _read_port(ports_file)
            if port is not None:
                break
            if self.stopping or time.monotonic() > deadline_s:
                self.stop_server()
                return "it was told to stop" if self.stopping else "it was not ready in time"
            self.wait(0.001 if time.monotonic() - self.started_s < 0.5 else 0.02)
        self.port = port
        try:
            self.write_record()
        except OSError as error:
            self.stop_server()
            return str(error)
        return None

    def ask_version(self) -> None:
        """Ask for the version for `server.json`; no user waits for it."""
        import json
        import socket

        try:
            with socket.create_connection(("127.0.0.1", self.port), 5.0) as connection:
                greeting = connection.makefile("rb").readline()
            self.version = str(json.loads(greeting.removeprefix(b"INFO "))["version"])
            self.write_record()
        except (OSError, ValueError, KeyError) as error:
            self.say(f"the server's version is unknown: {error}")

    def choose_port(self) -> bool:
        """Keep the previous port; if it is taken use -1 (nats-server picks one) and return True."""
        import socket

        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", max(self.port, 0)))
            except OSError:
                self.port = -1
                return True
        return False

    def restart(self, status: int) -> bool:
        """Restart the server; False if it keeps dying."""
        while not self.stopping:
            self.say(f"nats-server ended with status {status}; starting it again")
            self.try_write_record()  # without a process id: it must not pass for the old
            lived_s = time.monotonic() - self.started_s
            self.quick_deaths = self.quick_deaths + 1 if lived_s < 2.0 else 0
            if self.quick_deaths > MAX_QUICK_DEATHS:
                self.say("it keeps ending; giving up")
                return False
            if self.quick_deaths > 1:
                self.wait(0.05 * 2**self.quick_deaths)
            self.choose_port()
            self.spawn()
            failure = self.await_ready()
            if failure is None:
                return True
            self.say(f"restart failed: {failure}")
        return False

    def stop_server(self) -> None:
        if self.server_pid == 0:
            return
        os.kill(self.server_pid, _SIGTERM)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self.reap() is not None:
                return
            self.wait(0.02)
        self.say("nats-server did not stop when asked; killing it")
        os.kill(self.server_pid, _SIGKILL)
        self.reap(wait=True)

    # -- without PDEATHSIG

    def start_guard(self) -> None:
        read_fd, write_fd = os.pipe()
        guard_pid = os.fork()
        if guard_pid == 0:
            for fd in (write_fd, self.store_fd, self.report_fd):
                if fd >= 0:
                    os.close(fd)
            keeper_is_gone = os.read(read_fd, 1) == b""
            # The lock, not the process id, proves that the server still runs.
            if keeper_is_gone and not _lockable(self.path("store.lock")):
                os.kill(self.server_pid, _SIGKILL)
            os._exit(0)
        os.close(read_fd)
        self.guard = (guard_pid, write_fd)

    def end_guard(self) -> None:
        if self.guard is None:
            return
        guard_pid, write_fd = self.guard
        self.guard = None
        try:
            os.write(write_fd, b"x")
        except BrokenPipeError:
            self.say("the guard was killed")
        os.close(write_fd)
        try:
            os.waitpid(guard_pid, 0)
        except ChildProcessError:
            return  # as in reap()

    # -- the watch

    def watch(self) -> None:
        self.ask_version()
        while not self.stopping:
            timeout_s = POLL_S
            if self.idle_since_s is not None:
                timeout_s = min(POLL_S, self.idle_since_s + self.grace_s - time.monotonic())
            self.wait(max(timeout_s, 0.001))
            status = self.reap()
            if status is None:
                status = self.mend_store()
            if status is not None and not self.restart(status):
                break
            if self.is_unused():
                break
            if self.record_stamp != _stamp(self.path("server.json")):
                self.try_write_record()  # it was deleted or overwritten
        self.stop_server()
        self.try_write_record()
        self.say("stopped")

    def mend_store(self) -> int | None:
        """Stop a server that cannot write although there is space; return its exit status then."""
        now_s = time.monotonic()
        if now_s - self.looked_s < LOOK_S:
            return None
        self.looked_s = now_s
        if _free_bytes(self.path("store")) < ENOUGH_BYTES:
            self.was_full = True
            return None
        if not self.was_full and now_s - self.asked_s < ASK_S:
            return None
        self.was_full, self.asked_s = False, now_s
        if "write error" not in _health(self.port, self.user, self.password):
            return None
        self.say("the store could not be written, but there is space now: restarting nats-server")
        self.stop_server()
        return 0

    def try_write_record(self) -> None:
        try:
            self.write_record()
        except OSError as error:
            self.say(f"cannot write server.json: {error}")
            self.record_stamp = _stamp(self.path("server.json"))  # log this only once

    def is_unused(self) -> bool:
        """True, with `users.lock` held exclusively, after a whole grace period without users."""
        here = os.fstat(self.users_fd)
        if _stamp(self.path("users.lock"))[0] != here.st_ino:
            self.say("the state directory was removed")
            return True
        try:
            fcntl.flock(self.users_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.idle_since_s = None
            return False
        now_s = time.monotonic()
        touched = os.fstat(self.users_fd).st_mtime_ns  # users touch it, even if they leave at once
        if self.idle_since_s is None or touched != self.users_seen:
            self.idle_since_s = now_s
            self.users_seen = touched
        asked_to_stop = os.path.exists(self.path("stop"))  # noqa: PTH110
        if asked_to_stop or now_s - self.idle_since_s >= self.grace_s:
            return True
        fcntl.flock(self.users_fd, fcntl.LOCK_UN)
        return False

    def write_record(self) -> None:
        members = (
            self.record_head,
            f'"url": "nats://127.0.0.1:{self.port}"',
            f'"port": {self.port}',
            # no HTTP monitoring: but older programs reject a record without this
            f'"monitor_port": {self.port}',
            f'"server_pid": {self.server_pid or "null"}',
            f'"keeper_pid": {os.getpid() if self.server_pid else "null"}',
            f'"version": "{self.version}"',
            f'"started_at": "{self.started_at}"',
        )
        draft = self.path("server.json.new")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(fd, b"{%s}\n" % ",\n ".join(members).encode())
            status = os.fstat(fd)  # of our own file, not of a later one
        finally:
            os.close(fd)
        os.replace(draft, self.path("server.json"))  # noqa: PTH105
        self.record_stamp = (status.st_ino, status.st_mtime_ns, status.st_size)

    # -- signals

    def listen_to_signals(self) -> None:
        import signal

        def stop(*_: object) -> None:
            self.stopping = True

        def note(*_: object) -> None:
            """Nothing to do: the wakeup descriptor has the signal."""

        self.wakeup_fd, write_fd = os.pipe()
        os.set_blocking(self.wakeup_fd, False)
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        signal.signal(signal.SIGCHLD, note)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def wait(self, timeout_s: float) -> None:
        """Sleep until a signal arrives (such as a child's end), or for `timeout_s`."""
        if self.wakeup_fd < 0:  # the first start: signals are not set up yet
            time.sleep(timeout_s)
            return
        import select

        if select.select([self.wakeup_fd], [], [], timeout_s)[0]:
            os.read(self.wakeup_fd, 512)


def _prctl() -> Any:
    import ctypes

    return ctypes.CDLL(None).prctl


def _read_port(path: str) -> int | None:
    """The port in `{"nats":["nats://127.0.0.1:1"]}`; None if the file is not there yet."""
    try:
        with open(path) as file:  # noqa: PTH123
            return int(file.read().partition("://127.0.0.1:")[2].partition('"')[0])
    except (FileNotFoundError, ValueError):
        return None


def _stamp(path: str) -> tuple[int, int, int]:
    """Changes when the file is replaced, written or removed."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _free_bytes(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _health(port: int, user: str, password: str) -> str:
    """The server's health report; empty if it does not answer. Speaks the protocol directly, as a
    user of the system account: the keeper has no client.
    """
    import json
    import socket

    me = json.dumps({"user": user, "pass": password, "verbose": False, "lang": "keeper"})
    ask = "SUB health 1\r\nPUB $SYS.REQ.SERVER.PING.HEALTHZ health 0\r\n\r\n"
    said = b""
    try:
        with socket.create_connection(("127.0.0.1", port), 2.0) as connection:
            connection.sendall(f"CONNECT {me}\r\n{ask}PING\r\n".encode())
            while b"MSG health 1 " not in said or not said.endswith(b"\r\n"):
                chunk = connection.recv(65536)
                if not chunk or b"-ERR" in said:
                    return ""
                said += chunk
    except OSError:
        return ""
    return said.partition(b"MSG health 1 ")[2].decode(errors="replace")


def _lockable(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def main() -> None:
    told = sys.stdin.buffer.read()
    if not told:  # our starter was killed before it sent the parameters
        return
    launch: dict[str, Any] = marshal.loads(told)
    if os.fork():  # the starter waits for this process, so the keeper never becomes its zombie
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.set_inheritable(launch["report_fd"], False)
    os.umask(0o077)
    sys.exit(Keeper(launch).run())
