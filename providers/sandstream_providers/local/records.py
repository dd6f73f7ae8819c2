"""What the provider keeps on disk: one directory a box, one record in it, one lock a key.

    <home>/sandboxes/<key>/box.json     the record
                           workspace/   the box's files: never touched from outside
                           jobs/        the agent's records, not visible in the box
                           agent.sock   where the agent listens (on Linux; elsewhere if too long)
                           lease        locked by every process that wants the box to live
                           log          what the launcher and the agent said
    <home>/sandboxes/.deleted-<key>     a box whose removal was begun
    <home>/locks/<key>                  held while a box is made, started or ended

All is private to the user who runs the provider.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from sandstream_providers.environment import variables
from sandstream_providers.interface import KEY, BoxSpec, ProviderError, check_key
from sandstream_providers.local import sockets
from sandstream_providers.locks import KeyLock
from sandstream_providers.processes import ProcessMark

_SHORT_BASE_BYTES = 40
"""A base of this length leaves room for the rest of a socket's path."""
_DELETED = ".deleted-"

Mode = Literal["bubblewrap", "none"]


class BoxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A box as it was last started."""

    spec: BoxSpec
    created_at: float
    mode: Mode
    root: str
    uid: int | None = None
    """Whom the workspace belongs to, where the provider runs as root."""
    state: Literal["running", "paused", "stopped"] = "stopped"
    outer: ProcessMark | None = None
    """The launcher, which is the parent of bubblewrap; without isolation the agent itself."""
    inner: ProcessMark | None = None
    """The first process in the box; with it all others end."""
    socket: str = ""
    """Where the agent listens. On record, since the place depends on who made the box."""
    ports: dict[int, int] = {}
    """Port in the box -> port on the host's 127.0.0.1."""
    cgroups: list[str] = []

    @property
    def in_memory(self) -> bool:
        """The files live only as long as the box's processes."""
        return self.mode == "bubblewrap" and self.spec.limits.disk_mb is not None


class Layout:
    """Paths, records and locks below one home directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._boxes = home / "sandboxes"
        self._locks = home / "locks"

    def prepare(self) -> None:
        for path in (self.home, self._boxes, self._locks):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folder(self, key: str) -> Path:
        return self._boxes / check_key(key)

    def workspace(self, key: str) -> Path:
        return self.folder(key) / "workspace"

    def jobs(self, key: str) -> Path:
        return self.folder(key) / "jobs"

    def log(self, key: str) -> Path:
        return self.folder(key) / "log"

    def lease(self, key: str) -> Path:
        return self.folder(key) / "lease"

    def namespace_info(self, key: str) -> Path:
        """Where bubblewrap writes the pid of the box's first process."""
        return self.folder(key) / "namespaces.json"

    def new_socket(self, key: str) -> Path:
        direct = self.folder(key) / "agent.sock"
        if sockets.fits(direct):
            return direct
        return self._short_folder() / hashlib.sha256(key.encode()).hexdigest()[:24]

    def read(self, key: str) -> BoxRecord | None:
        try:
            data = (self.folder(key) / "box.json").read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=BoxRecord)
        except msgspec.MsgspecError as error:
            raise ProviderError(
                f"the record {self.folder(key) / 'box.json'} cannot be read: {error}"
            ) from error

    def write(self, record: BoxRecord) -> None:
        """All or nothing, whenever the process dies."""
        folder = self.folder(record.spec.key)
        fresh = folder / "box.json.new"
        fresh.touch(mode=0o600)
        fresh.write_bytes(msgspec.json.encode(record))
        fresh.replace(folder / "box.json")

    def all_keys(self) -> list[str]:
        if not self._boxes.is_dir():
            return []
        return sorted(path.name for path in self._boxes.iterdir() if KEY.fullmatch(path.name))

    def put_aside(self, key: str) -> Path | None:
        """Take the box out of the list of boxes. Its files are still there, to be removed."""
        aside = self._boxes / f"{_DELETED}{key}"
        if aside.exists() and self.folder(key).exists():  # a removal of before was cut short
            aside = aside.with_name(f"{aside.name}-{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError):
            self.folder(key).rename(aside)
        if not self.all_keys():
            with contextlib.suppress(OSError):
                self._short_path().rmdir()
        return aside if aside.is_dir() else None

    def put_aside_before(self) -> Iterator[Path]:
        """What a removal that was cut short has left."""
        if self._boxes.is_dir():
            yield from (path for path in self._boxes.iterdir() if path.name.startswith(_DELETED))

    def locked(self, key: str, *, remove_after: bool = False) -> KeyLock:
        """One process of this machine at a time; free again when its holder dies."""
        self.folder(key)
        self.prepare()
        return KeyLock(self._locks / key, remove_after=remove_after)

    def _short_path(self) -> Path:
        base = variables().get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        if len(os.fsencode(base)) > _SHORT_BASE_BYTES:
            base = "/tmp"
        name = hashlib.sha256(os.fsencode(self.home.absolute())).hexdigest()[:12]
        return Path(base) / f"sandstream-{os.getuid()}-{name}"

    def _short_folder(self) -> Path:
        folder = self._short_path()
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o170077 != 0o040000:
            raise ProviderError(f"{folder} is not a private directory of this user: remove it")
        return folder
