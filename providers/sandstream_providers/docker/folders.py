"""The files of this machine that belong to a box.

    <home>/docker/<key>/box.json      what is needed to start the box again
                        agent.pyz     the agent, mounted read-only
                        run/          mounted: the agent's sockets, its lease, its first settings
    <home>/docker/.deleted-<key>      a box whose removal was begun
    <home>/docker/.images/            what was found out about images
    <home>/locks/<key>                held while a box is made, started or ended

The box may write to ``run`` only until its agent listens. From then on the directory is closed to
it: commands can reach neither the socket of the agent nor the lease, and cannot fill this disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sandstream_providers.box.start import agent_source
from sandstream_providers.interface import KEY, BoxSpec, ProviderError, check_key
from sandstream_providers.locks import KeyLock

_DELETED = ".deleted-"
_NOBODY = 65534
"""Owns the directory ``run`` where this process is root: else root in a box would own it too."""
START, SOCKET, PORTS, LEASE = "start.json", "agent.sock", "ports.sock", "lease"


class BoxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A box as this machine knows it. The engine knows the rest."""

    spec: BoxSpec
    token: str = ""
    """Of the agent that was started last."""
    link: str = ""
    """How that agent is reached: ``unix socket`` or ``exec stream``."""


class Folders:
    """Paths, records and locks below one home directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.top = home / "docker"
        self.images = self.top / ".images"
        self._locks = home / "locks"

    def prepare(self) -> None:
        for path in (self.home, self.top, self.images, self._locks):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folder(self, key: str) -> Path:
        return self.top / check_key(key)

    def run(self, key: str) -> Path:
        return self.folder(key) / "run"

    def proxy(self, key: str) -> Path:
        """Where the proxy of a box listens."""
        return self.folder(key) / "proxy"

    def agent(self, key: str) -> Path:
        return self.folder(key) / "agent.pyz"

    def lease(self, key: str) -> Path:
        return self.run(key) / LEASE

    def locked(self, key: str, *, remove_after: bool = False) -> KeyLock:
        """One process of this machine at a time; free again when its holder dies."""
        self.prepare()
        return KeyLock(self._locks / check_key(key), remove_after=remove_after)

    # --- records ----------------------------------------------------------------------------------

    def read(self, key: str) -> BoxRecord | None:
        file = self.folder(key) / "box.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=BoxRecord)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise ProviderError(f"the record {file} cannot be read: {error}") from error

    def write(self, record: BoxRecord) -> None:
        """All or nothing, whenever the process dies."""
        folder = self.folder(record.spec.key)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = folder / "box.json.new"
        fresh.touch(mode=0o600)
        fresh.write_bytes(msgspec.json.encode(record))
        fresh.replace(folder / "box.json")

    def boxes(self) -> list[str]:
        """The boxes that have a folder here, with or without a container."""
        if not self.top.is_dir():
            return []
        return [it.name for it in self.top.iterdir() if KEY.fullmatch(it.name)]

    def made_at(self, key: str) -> float:
        """When its record was written last; 0 if there is none."""
        try:
            return (self.folder(key) / "box.json").stat().st_mtime
        except FileNotFoundError:
            return 0.0

    # --- the directory that the box sees ----------------------------------------------------------

    def lay_out(self, key: str) -> None:
        """The files that the mounts of a container name must exist before it does."""
        self.run(key).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.agent(key).write_bytes(agent_source())
        self.agent(key).chmod(0o444)
        lease = self.lease(key)
        lease.touch(mode=0o600)
        if os.geteuid() == 0:
            for path in (self.run(key), lease):
                os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)

    def open_to_box(self, key: str, settings: dict[str, Any] | None) -> None:
        """Before a start: the agent finds its settings, and may make its sockets. Without settings
        it waits for them, until :meth:`tell`.
        """
        self.lay_out(key)
        run = self.run(key)
        for name in (SOCKET, PORTS, START):
            (run / name).unlink(missing_ok=True)
        if settings is None:
            os.mkfifo(run / START, 0o600)
        else:
            (run / START).touch(mode=0o600, exist_ok=False)
            (run / START).write_bytes(json.dumps(settings).encode())
        (run / START).chmod(0o444)
        self.lease(key).chmod(0o444)
        run.chmod(0o777)

    def tell(self, key: str, settings: dict[str, Any]) -> None:
        """Give the settings to an agent that waits for them. Raises OSError if none does."""
        path = self.run(key) / START
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                raise FileNotFoundError(f"no process waits at {path}")
            os.set_blocking(fd, True)
            view = memoryview(json.dumps(settings).encode())
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def close_to_box(self, key: str, *, passable: bool = False) -> None:
        """``passable``: processes that are executed in the box go through to the socket."""
        self.run(key).chmod(0o711 if passable else 0o700)
        self.lease(key).chmod(0o600)

    def adopt(self, member: str, key: str) -> None:
        """A folder gets another name; under the old one, which mounts name, it is still found."""
        old, new = self.folder(member), self.folder(key)
        if new.is_symlink():
            new.unlink()
        old.rename(new)
        old.symlink_to(new.name)

    # --- removal ----------------------------------------------------------------------------------

    def put_aside(self, key: str) -> Path | None:
        """Take the box out of the list of boxes. Its files are still there, to be removed."""
        for link in self.top.glob("pool-*"):
            if link.is_symlink() and link.readlink() == Path(key):
                link.unlink()
        aside = self.top / f"{_DELETED}{key}"
        with contextlib.suppress(FileNotFoundError):
            self.folder(key).rename(aside)
        return aside if aside.is_dir() else None

    def put_aside_before(self) -> Iterator[Path]:
        """What a removal that was cut short has left."""
        if self.top.is_dir():
            yield from (path for path in self.top.iterdir() if path.name.startswith(_DELETED))


@contextlib.contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address for a socket that a box made, of any length, and never a link to elsewhere.

    Raises OSError if there is no socket.
    """
    fd = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise ConnectionRefusedError(f"{path} is not a socket")
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
