"""The files below the root, with digests, and which of them changed.

A digest is remembered with the file's inode, size and times, and trusted as long as these stay. A
file that was changed just before it was read could change again within the same tick of the file
system's clock; such a digest is not trusted but taken again the next time.
"""

from __future__ import annotations

import os
import stat as modes
import threading
import time

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.files.descent import Descent, Level
from sandstream_providers.box.agent.files.paths import STAGE, Paths
from sandstream_providers.box.agent.files.single_files import READ_FLAGS, entry
from sandstream_providers.box.agent.refused import Refused, from_os_error

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Generator, List, Tuple

    Signature = Tuple[int, int, int, int, int]
    Facts = Tuple[str, int, str, str, int]
    """Kind, mode, digest, target, time of change: what makes an entry differ."""
    Row = List[Any]
    Batch = Tuple[List[Row], bytes]
    """Rows (an entry, whether it is gone, the length of its content or -1) and the contents."""


INLINE_BYTES = 4 * 1024 * 1024
CLOCK_TICK_NS = 20 * 1000 * 1000
MAX_SCANS = 4
ROWS_PER_BATCH = 500
BYTES_PER_BATCH = 4 * 1024 * 1024


def signature(facts: os.stat_result) -> Signature:
    return (facts.st_ino, facts.st_size, facts.st_ctime_ns, facts.st_mtime_ns, facts.st_mode)


class Scanner:
    """Remembers digests, and the last scan that a client received to its end."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._one_at_a_time = threading.Lock()
        self.digests: dict[bytes, tuple[Signature, str, bool]] = {}
        """By path: of which state of the file, the digest, whether to trust it."""
        self.received: dict[bytes, Facts] = {}
        self.known: dict[bytes, str] = {}
        """Digests of contents that the client has."""
        self._token = ""
        """Names the last scan that was received, by any client: differences count from it."""
        self._number = 0
        self._walks: dict[int, Walk] = {}

    def scan(self, request: dict[str, Any], _payload: bytes) -> dict[str, int]:
        """Begin; the items are fetched with ``next``, so that the client sets the pace."""
        exclude = {os.path.normpath(wire.to_bytes(path)) for path in request["exclude"]}
        with self._one_at_a_time:
            if not request["full"] and request["since"] != self._token:
                raise Refused("ScanOutdated", "another scan came between: ask for everything")
            self._number += 1
            while len(self._walks) >= MAX_SCANS:  # clients went away in the middle
                self._walks.pop(next(iter(self._walks))).close()
            self._walks[self._number] = Walk(self, self._paths.root, exclude, bool(request["full"]))
            return {"scan": self._number}

    def next(self, request: dict[str, Any], _payload: bytes) -> tuple[list[Row], bytes]:
        """Batch number ``index``; an empty one is the end. The last one may be requested again."""
        with self._one_at_a_time:
            return self._walk(request).batch(request["index"])

    def done(self, request: dict[str, Any], _payload: bytes) -> dict[str, str]:
        """The client has all of it."""
        with self._one_at_a_time:
            if request["scan"] in self._walks:  # else it was asked again
                self._token = os.urandom(8).hex()
                walk = self._walks.pop(request["scan"])
                walk.close()
                self.digests = walk.digests
                self.received = walk.found
                self.known = {
                    path: facts[2] for path, facts in walk.found.items() if facts[0] == "file"
                }
            return {"token": self._token}

    def _walk(self, request: dict[str, Any]) -> Walk:
        walk = self._walks.get(request["scan"])
        if walk is None:
            raise Refused("BoxGone", "the agent was started again during the scan: scan again")
        return walk

    def prime(self, request: dict[str, Any], _payload: bytes) -> None:
        time.sleep(CLOCK_TICK_NS / 1e9)  # from now on a change is seen by its time
        with self._one_at_a_time:
            for text, size, digest in request["entries"]:
                path = os.path.normpath(wire.to_bytes(text))
                try:
                    facts = os.stat(self._paths.root + b"/" + path, follow_symlinks=False)
                except OSError:
                    continue  # gone again: there is nothing to be known
                if modes.S_ISREG(facts.st_mode) and facts.st_size == size:
                    self.digests[path] = (signature(facts), digest, True)
                    self.known[path] = digest


class Walk:
    """One scan."""

    def __init__(self, scanner: Scanner, root: bytes, exclude: set[bytes], full: bool) -> None:
        from hashlib import sha256  # takes long to load, and many boxes are never scanned

        self._sha256 = sha256
        self._before = scanner
        self._exclude = exclude
        self._full = full
        self._rows: list[Row] = []
        self._payload: list[bytes] = []
        self._batch_bytes = 0
        self.found: dict[bytes, Facts] = {}
        self.digests: dict[bytes, tuple[Signature, str, bool]] = {}
        self._batches = self._all(root)
        self._index = -1
        self._batch: Batch = ([], b"")

    def batch(self, index: int) -> Batch:
        if index == self._index + 1:
            self._batch = next(self._batches, ([], b""))
            self._index = index
        return self._batch

    def close(self) -> None:
        self._batches.close()

    def _all(self, root: bytes) -> Generator[Batch, None, None]:
        descent = Descent(root)
        try:
            here = descent.here
            while here is not None:
                if not here.names:
                    descent.leave()
                    here = descent.here
                    continue
                self._item(descent, here, os.fsencode(here.names.pop()))
                here = descent.here
                if len(self._rows) >= ROWS_PER_BATCH or self._batch_bytes >= BYTES_PER_BATCH:
                    yield self._take_batch()
        finally:
            descent.close()
        if not self._full:
            self._removed()
        if self._rows:
            yield self._take_batch()

    def _item(self, descent: Descent, here: Level, name: bytes) -> None:
        path = here.prefix + name
        if path in self._exclude or name == STAGE:
            return
        try:
            facts = os.stat(name, dir_fd=here.fd, follow_symlinks=False)
            mode = facts.st_mode
            if modes.S_ISREG(mode):
                self._file(here.fd, name, path, facts)
            elif modes.S_ISDIR(mode):
                self._report(path, facts, ("dir", modes.S_IMODE(mode), "", "", 0), None)
                descent.enter(name, mode)
            elif modes.S_ISLNK(mode):
                self._link(here.fd, name, path, facts)
        except FileNotFoundError:
            return  # removed meanwhile
        except PermissionError as error:
            raise from_os_error(error, wire.to_text(path)) from error

    def _link(self, fd: int, name: bytes, path: bytes, facts: os.stat_result) -> None:
        target = wire.to_text(os.readlink(name, dir_fd=fd))
        self._report(path, facts, ("link", modes.S_IMODE(facts.st_mode), "", target, 0), None)

    def _file(self, fd: int, name: bytes, path: bytes, facts: os.stat_result) -> None:
        now = signature(facts)
        before = self._before.digests.get(path)
        known = self._before.known.get(path)
        data: bytes | None = None
        size = facts.st_size
        if before is not None and before[2] and before[0] == now and before[1] == known:
            digest = before[1]
            self.digests[path] = before
        else:
            digest, data, size, trusted = self._read(fd, name, facts)
            self.digests[path] = (now, digest, trusted)
            if digest == known:
                data = None
        mode = modes.S_IMODE(facts.st_mode)
        self._report(path, facts, ("file", mode, digest, "", facts.st_mtime_ns), data, size)

    def _read(
        self, fd: int, name: bytes, facts: os.stat_result
    ) -> tuple[str, bytes | None, int, bool]:
        """Digest, content if it is small, size, and whether the digest may be remembered."""
        started = time.time_ns()
        mode = modes.S_IMODE(facts.st_mode)
        file = _open_anyway(fd, name, mode)
        try:
            if not modes.S_ISREG(os.fstat(file).st_mode):
                raise FileNotFoundError(name)  # replaced meanwhile
            data = os.read(file, INLINE_BYTES + 1)
            digest = self._sha256(data)
            size = len(data)
            if size and size <= INLINE_BYTES:
                rest = os.read(file, INLINE_BYTES + 1 - size)
                while rest:
                    digest.update(rest)
                    size += len(rest)
                    data = data + rest if size <= INLINE_BYTES else b""
                    rest = os.read(file, INLINE_BYTES)
            elif size:
                data = b""
                rest = os.read(file, INLINE_BYTES)
                while rest:
                    digest.update(rest)
                    size += len(rest)
                    rest = os.read(file, INLINE_BYTES)
            after = os.fstat(file)
        finally:
            os.close(file)
        trusted = (
            signature(after) == signature(facts)
            and max(after.st_ctime_ns, after.st_mtime_ns) < started - CLOCK_TICK_NS
        )
        return digest.hexdigest(), data if size <= INLINE_BYTES else None, size, trusted

    def _report(
        self,
        path: bytes,
        facts: os.stat_result,
        now: Facts,
        data: bytes | None,
        size: int | None = None,
    ) -> None:
        self.found[path] = now
        if not self._full and self._before.received.get(path) == now:
            return
        row = entry(path, facts, now[2], wire.to_bytes(now[3]))
        if size is not None:
            row[3] = size
        self._add(row, False, data)

    def _removed(self) -> None:
        for path, facts in self._before.received.items():
            if path not in self.found:
                row = [wire.to_text(path), facts[0], facts[1], 0, "", "", 0, 0, 0]
                self._add(row, True, None)

    def _add(self, row: Row, removed: bool, data: bytes | None) -> None:
        row.append(removed)
        row.append(-1 if data is None else len(data))
        self._rows.append(row)
        self._batch_bytes += len(row[0])
        if data:
            self._payload.append(data)
            self._batch_bytes += len(data)

    def _take_batch(self) -> Batch:
        batch = (self._rows, b"".join(self._payload))
        self._rows = []
        self._payload = []
        self._batch_bytes = 0
        return batch


def _open_anyway(fd: int, name: bytes, mode: int) -> int:
    """The owner may always read; a mode that says otherwise is set back."""
    try:
        return os.open(name, READ_FLAGS, dir_fd=fd)
    except PermissionError:
        os.chmod(name, mode | 0o400, dir_fd=fd)
        try:
            return os.open(name, READ_FLAGS, dir_fd=fd)
        finally:
            os.chmod(name, mode, dir_fd=fd)
