"""The state directory: its location, its files, their locks and permissions.

Does not know what runs on it. Whether a server runs is decided by locks, never by process ids:

    users.lock   shared by every user of the server, exclusively by a keeper that shuts down
    store.lock   held exclusively by the keeper and by nats-server itself: one server per store
    server.json  the keeper's last record of its server; a hint, valid only while it answers
    nats.conf    the server's configuration, with the password
    server.log   output of keeper and server
    stop         asks the keeper to skip its grace period
    ports/       where nats-server writes its ports
    store/       JetStream's files
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sandstream_bus.embedded.errors import (
    EmbeddedServerError,
    EmbeddedStoreFull,
    StatePathInvalid,
    StoreNotWritable,
)
from sandstream_bus.environment import environment

MIN_FREE_BYTES = 64 * 1024 * 1024
MAX_LOG_BYTES = 10 * 1024 * 1024
# PATH_MAX is 4096; the rest is room for `store/jetstream/$G/streams/<stream>/obs/<consumer>/…`.
MAX_PATH_BYTES = 3000


def default_home(environ: Mapping[str, str] | None = None) -> Path:
    """`$SANDSTREAM_HOME`, else `$XDG_STATE_HOME/sandstream`, else `~/.local/state/sandstream`."""
    env = environment(environ)
    if home := env.get("SANDSTREAM_HOME"):
        return Path(home).expanduser().absolute()
    # The XDG specification says that relative paths are ignored.
    if (base := env.get("XDG_STATE_HOME")) and Path(base).is_absolute():
        return Path(base) / "sandstream"
    return Path.home() / ".local" / "state" / "sandstream"


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`server.json`. The process ids are None once the keeper has stopped its server."""

    url: str
    port: int
    user: str
    password: str
    server_name: str
    sync: str
    started_at: str
    version: str = ""
    server_pid: int | None = None
    keeper_pid: int | None = None


@dataclass(frozen=True, slots=True)
class StateDir:
    home: Path

    @classmethod
    def at(cls, home: Path) -> StateDir:
        return cls(Path(home).absolute())  # the keeper works in another directory

    @property
    def users_lock(self) -> Path:
        return self.home / "users.lock"

    @property
    def store_lock(self) -> Path:
        return self.home / "store.lock"

    @property
    def record(self) -> Path:
        return self.home / "server.json"

    @property
    def config(self) -> Path:
        return self.home / "nats.conf"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def stop_request(self) -> Path:
        return self.home / "stop"

    @property
    def ports(self) -> Path:
        return self.home / "ports"

    @property
    def store(self) -> Path:
        return self.home / "store"

    def prepare(self) -> None:
        """Create the directory, 0700; an existing one keeps its own permissions."""
        if len(os.fsencode(self.home)) > MAX_PATH_BYTES:
            raise StatePathInvalid(self.home, f"longer than {MAX_PATH_BYTES} bytes")
        try:
            if not self.home.is_dir():
                self.home.parent.mkdir(parents=True, exist_ok=True)
                self.home.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise translate(error, self.home) from error

    def prepare_for_server(self) -> None:
        """Prepare for a new server; only for the holder of `store.lock`."""
        free_bytes = shutil.disk_usage(self.home).free
        if free_bytes < MIN_FREE_BYTES:
            raise EmbeddedStoreFull(self.home, free_bytes, MIN_FREE_BYTES)
        try:
            for directory in (self.store, self.ports):
                directory.mkdir(mode=0o700, exist_ok=True)
                directory.chmod(0o700)  # it may exist, from a copy that lost its permissions
            self.stop_request.unlink(missing_ok=True)
            if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))
        except OSError as error:
            raise translate(error, self.home) from error

    def read_record(self) -> ServerRecord | None:
        """The record; None if there is none, or if it is invalid."""
        try:
            record = msgspec.json.decode(self.record.read_bytes(), type=ServerRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return record if 0 < record.port < 65536 else None

    def open_private(self, path: Path, flags: int) -> int:
        """Open or create one of our files, 0600 and close-on-exec."""
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise translate(error, self.home) from error
        try:
            if os.fstat(fd).st_mode & 0o077:
                os.fchmod(fd, 0o600)
        except OSError as error:
            os.close(fd)
            raise translate(error, self.home) from error
        return fd

    def write_private(self, path: Path, data: bytes) -> None:
        """Replace one of our files atomically; only for the holder of `store.lock`."""
        draft = path.with_name(path.name + ".new")
        fd = self.open_private(draft, os.O_WRONLY | os.O_TRUNC)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            draft.replace(path)
        except OSError as error:
            raise translate(error, self.home) from error

    def try_lock(self, path: Path, operation: int) -> int | None:
        """A descriptor that holds the lock until it is closed, or None if others hold it.

        A lock on a file that was deleted meanwhile protects nothing, so that counts as None.
        """
        fd = self.open_private(path, os.O_RDWR)
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError as error:
            os.close(fd)
            raise translate(error, self.home) from error
        os.close(fd)
        return None


def translate(error: OSError, home: Path) -> EmbeddedServerError:
    """An operating system error about one of our paths, as one of our errors."""
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC or error.errno == errno.EDQUOT:
        return EmbeddedStoreFull(home, 0, MIN_FREE_BYTES)
    if error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP):
        return StatePathInvalid(home, reason)
    return StoreNotWritable(home, reason)
