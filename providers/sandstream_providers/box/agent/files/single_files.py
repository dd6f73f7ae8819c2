"""Single file operations."""

from __future__ import annotations

import errno
import os
import stat as modes

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.files.paths import STAGE, Paths, Place, look, not_found
from sandstream_providers.box.agent.refused import Refused

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
READ_AT_ONCE = 8 * 1024 * 1024
MAX_NESTED = 100
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def kind_of(mode: int) -> str:
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "dir"
    return "link" if modes.S_ISLNK(mode) else "other"


def entry(path: bytes, facts: os.stat_result, digest: str = "", target: bytes = b"") -> list[Any]:
    """In the order of the interface's ``Entry``."""
    return [
        wire.to_text(path),
        kind_of(facts.st_mode),
        modes.S_IMODE(facts.st_mode),
        facts.st_size,
        digest,
        wire.to_text(target),
        facts.st_mtime_ns,
        facts.st_uid,
        facts.st_gid,
    ]


def wrong_kind(path: str, what: str) -> Refused:
    return Refused("WrongKind", f"{path} {what}", path=path)


def write_all(fd: int, data: memoryview, position: int) -> None:
    while data:
        count = os.pwrite(fd, data, position)
        data = data[count:]
        position += count


def make_parents(place: Place, done: list[bytes] | None = None) -> None:
    """Make the missing directories and move the place into the innermost. ``done`` collects them
    for an undo, as absolute paths.
    """
    made = place.path.rsplit(b"/", len(place.missing) + 1)[0] if place.missing else b""
    while place.missing:
        name = place.missing[0]
        made += b"/" + name
        try:
            os.mkdir(name, 0o777, dir_fd=place.folder)
        except FileExistsError:
            pass  # it was made meanwhile; if it is no directory the next line says so
        else:
            if done is not None:
                done.append(made)
        inner = os.open(name, FOLDER_FLAGS, dir_fd=place.folder)
        os.close(place.folder)
        place.folder = inner
        place.missing.pop(0)
    place.refresh()


def remove_tree(folder: int, name: bytes) -> None:
    """A directory and all below it; links are removed, not followed."""
    top = _open_to_empty(folder, name)
    try:
        deep: list[bytes] = []
        _remove_content(top, top, deep, 0)
        while deep:
            _remove_folder(top, deep.pop(), top, deep, 0)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=folder)


def _open_to_empty(folder: int, name: bytes) -> int:
    try:
        fd = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        fd = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    if os.fstat(fd).st_mode & 0o300 != 0o300:
        os.fchmod(fd, 0o700)
    return fd


def _remove_folder(folder: int, name: bytes, top: int, deep: list[bytes], depth: int) -> None:
    inner = _open_to_empty(folder, name)
    try:
        _remove_content(inner, top, deep, depth)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)


def _remove_content(folder: int, top: int, deep: list[bytes], depth: int) -> None:
    """What is nested too deep is moved up to ``top``, for later: neither our descriptors nor our
    calls must run out.
    """
    with os.scandir(folder) as found:
        entries = [(item.name, item.is_dir(follow_symlinks=False)) for item in found]
    for name, is_dir in entries:
        raw = os.fsencode(name)
        try:
            if not is_dir:
                os.unlink(raw, dir_fd=folder)
            elif depth < MAX_NESTED:
                _remove_folder(folder, raw, top, deep, depth + 1)
            else:
                os.close(_open_to_empty(folder, raw))  # only what may be written can be moved
                deep.append(b".sandstream-deep-" + os.urandom(8).hex().encode())
                os.rename(raw, deep[-1], src_dir_fd=folder, dst_dir_fd=top)
        except FileNotFoundError:
            pass  # it was removed meanwhile


class Reader:
    """Looks only."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def _place(self, request: dict[str, Any]) -> Place:
        rule = self._paths.rule(request["rule"])
        place = self._paths.resolve(request["path"], rule)
        if place.facts is None:
            place.close()
            raise not_found(request["path"])
        return place

    def read(self, request: dict[str, Any], _payload: bytes) -> tuple[dict[str, Any], bytes]:
        """One piece; ``more`` says whether to ask for the next."""
        asked = request["path"]
        with self._place(request) as place:
            if not place.is_file():
                raise wrong_kind(asked, "is not a file")
            fd = os.open(place.name, READ_FLAGS, dir_fd=place.folder)
        try:
            facts = os.fstat(fd)
            if not modes.S_ISREG(facts.st_mode):
                raise wrong_kind(asked, "is not a file")
            limit = request["limit"]
            size = READ_AT_ONCE if limit is None else min(READ_AT_ONCE, limit)
            data = os.pread(fd, size, request["offset"]) if size > 0 else b""
        finally:
            os.close(fd)
        more = len(data) == READ_AT_ONCE and limit != READ_AT_ONCE
        return {"more": more}, data

    def stat(self, request: dict[str, Any], _payload: bytes) -> list[Any]:
        with self._place(request) as place:
            assert place.facts is not None
            return entry(place.path, place.facts)

    def list(self, request: dict[str, Any], _payload: bytes) -> list[list[Any]]:
        with self._place(request) as place:
            if not place.is_dir():
                raise wrong_kind(request["path"], "is not a directory")
            fd = os.open(place.name, FOLDER_FLAGS, dir_fd=place.folder)
        found = []
        try:
            for name in sorted(os.fsencode(name) for name in os.listdir(fd)):
                facts = look(fd, name)
                if facts is None or name == STAGE:
                    continue
                target = b""
                if modes.S_ISLNK(facts.st_mode):
                    target = os.readlink(name, dir_fd=fd)
                found.append(entry(name, facts, target=target))
        finally:
            os.close(fd)
        return found


class Writer:
    """Single changes. One at a time: the server sees to it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def make_dir(self, request: dict[str, Any], _payload: bytes) -> None:
        asked = request["path"]
        parents = request["parents"]
        rule = self._paths.rule(request["rule"])
        with self._paths.resolve(asked, rule, write=True, parents=parents) as place:
            if place.facts is not None:
                if place.is_dir() and parents:
                    return
                raise wrong_kind(asked, "exists")
            make_parents(place)
            os.mkdir(place.name, 0o755, dir_fd=place.folder)

    def remove(self, request: dict[str, Any], _payload: bytes) -> None:
        asked = request["path"]
        rule = self._paths.rule(request["rule"])
        with self._paths.resolve(asked, rule, write=True, follow=False) as place:
            if place.facts is None:
                raise not_found(asked)
            if place.path == place.root:
                raise Refused("NotPermitted", f"{asked} is a root and stays", path=asked)
            if not place.is_dir():
                os.unlink(place.name, dir_fd=place.folder)
            elif request["recursive"]:
                remove_tree(place.folder, place.name)
            else:
                os.rmdir(place.name, dir_fd=place.folder)

    def move(self, request: dict[str, Any], _payload: bytes) -> None:
        asked, target = request["path"], request["target"]
        rule = self._paths.rule(request["rule"])
        with self._paths.resolve(asked, rule, write=True, follow=False) as source:
            if source.facts is None:
                raise not_found(asked)
            if source.path == source.root:
                raise Refused("NotPermitted", f"{asked} is a root and stays", path=asked)
            with self._paths.resolve(target, rule, write=True, follow=False, parents=True) as place:
                make_parents(place)
                os.rename(
                    source.name, place.name, src_dir_fd=source.folder, dst_dir_fd=place.folder
                )

    def append(self, request: dict[str, Any], payload: bytes) -> None:
        """Bytes beyond ``at`` are cut off first: they come from a try that was forgotten."""
        asked, at = request["path"], request["at"]
        rule = self._paths.rule(request["rule"])
        with self._paths.resolve(asked, rule, write=True, parents=True) as place:
            if place.facts is not None and not place.is_file():
                raise wrong_kind(asked, "is not a file")
            if place.facts is None and at:
                raise not_found(asked)
            make_parents(place)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = _open_to_write(place, flags)
        try:
            facts = os.fstat(fd)
            if not modes.S_ISREG(facts.st_mode):
                raise wrong_kind(asked, "is not a file")
            if facts.st_size < at:
                raise wrong_kind(asked, f"has {facts.st_size} bytes, nothing can be put at {at}")
            os.ftruncate(fd, at)
            try:
                write_all(fd, memoryview(payload), at)
            except OSError:
                os.ftruncate(fd, at)
                raise
        finally:
            os.close(fd)

    def clear(self, request: dict[str, Any], _payload: bytes) -> None:
        keep = {os.path.normpath(wire.to_bytes(path)) for path in request["keep"]}
        if b"." in keep:
            return
        fd = os.open(self._paths.root, FOLDER_FLAGS)
        try:
            _clear_below(fd, b"", keep)
        finally:
            os.close(fd)


def _open_to_write(place: Place, flags: int) -> int:
    """The owner may always write; a mode that says otherwise is set back."""
    try:
        return os.open(place.name, flags, 0o644, dir_fd=place.folder)
    except PermissionError:
        if place.facts is None:
            raise
        mode = modes.S_IMODE(place.facts.st_mode)
        os.chmod(place.name, mode | 0o200, dir_fd=place.folder)
        try:
            return os.open(place.name, flags, 0o644, dir_fd=place.folder)
        finally:
            os.chmod(place.name, mode, dir_fd=place.folder)


def _clear_below(folder: int, path: bytes, keep: set[bytes]) -> None:
    for text in os.listdir(folder):
        name = os.fsencode(text)
        inner = path + name
        if inner in keep:
            continue
        facts = look(folder, name)
        if facts is None:
            continue
        if not modes.S_ISDIR(facts.st_mode):
            os.unlink(name, dir_fd=folder)
        elif any(kept.startswith(inner + b"/") for kept in keep):
            fd = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                _clear_below(fd, inner + b"/", keep)
            finally:
                os.close(fd)
        else:
            try:
                remove_tree(folder, name)
            except OSError as error:
                if error.errno != errno.EBUSY:  # a mount point stays, empty
                    raise
