"""Records of commands in a directory that commands cannot see.

``<op>/`` is the claim (whoever makes it starts the command), ``start`` says what was started,
``out`` and ``err`` hold the output, ``rc`` (put in place by a rename) says how it ended. A claim
without ``rc`` that no living agent knows is a lost command.
"""

from __future__ import annotations

import json
import os
import re

from sandstream_providers.box.agent import wire

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
KEPT = 1000


def folder_name(op: str) -> str:
    """A file name for any operation id."""
    if PLAIN.fullmatch(op):
        return op
    import hashlib

    return "=" + hashlib.sha256(wire.to_bytes(op)).hexdigest()


class Jobs:
    """All records below one directory."""

    def __init__(self, folder: int) -> None:
        self.folder = folder
        self._names = self._oldest_first()

    def _oldest_first(self) -> dict[str, None]:
        found = []
        for name in os.listdir(self.folder):
            found.append((os.stat(name, dir_fd=self.folder).st_mtime_ns, name))
        return dict.fromkeys(name for _, name in sorted(found))

    def names(self) -> list[str]:
        return list(self._names)

    def known(self, name: str) -> bool:
        return name in self._names

    def claim(self, name: str) -> None:
        """Raises FileExistsError if somebody did."""
        os.mkdir(name, 0o700, dir_fd=self.folder)
        self._names[name] = None

    def unclaim(self, name: str) -> None:
        """Nothing was started."""
        os.rmdir(name, dir_fd=self.folder)
        self._names.pop(name, None)

    def record_start(self, name: str, facts: dict[str, Any]) -> None:
        self._write(f"{name}/start", facts)

    def record_end(self, name: str, facts: dict[str, Any]) -> None:
        temporary = f"{name}/rc.tmp"
        self._write(temporary, facts)
        os.rename(temporary, f"{name}/rc", src_dir_fd=self.folder, dst_dir_fd=self.folder)

    def start(self, name: str) -> dict[str, Any]:
        return self._read(f"{name}/start")

    def end(self, name: str) -> dict[str, Any]:
        """Empty if the command did not end under the agent's eyes."""
        return self._read(f"{name}/rc")

    def size(self, path: str) -> int:
        try:
            return os.stat(path, dir_fd=self.folder).st_size
        except FileNotFoundError:
            return 0

    def prune(self, in_use: set[str]) -> list[str]:
        """Forget the oldest records beyond the number that is kept."""
        excess = len(self._names) - KEPT
        if excess <= 0:
            return []
        old = [name for name in self._names if name not in in_use][:excess]
        for name in old:
            self._remove(name)
            del self._names[name]
        return old

    def _remove(self, name: str) -> None:
        for file in ("start", "out", "err", "rc", "rc.tmp"):
            try:
                os.unlink(f"{name}/{file}", dir_fd=self.folder)
            except FileNotFoundError:
                pass
        os.rmdir(name, dir_fd=self.folder)

    def _write(self, path: str, facts: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600, dir_fd=self.folder)
        try:
            os.write(fd, json.dumps(facts).encode("ascii"))
        finally:
            os.close(fd)

    def _read(self, path: str) -> dict[str, Any]:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.folder)
        except FileNotFoundError:
            return {}
        with os.fdopen(fd, "rb") as file:
            text = file.read()
        try:
            facts = json.loads(text)
        except ValueError:
            return {}  # cut off by a full disk or a kill: as if it was never written
        return facts if isinstance(facts, dict) else {}
