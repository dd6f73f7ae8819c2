"""Writes many files into an empty root, in place: they are not staged and not undone.

The root has just been cleared. Files that a command has written there meanwhile are replaced.
"""

from __future__ import annotations

import os

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.files.change import NEW, chmod_folder
from sandstream_providers.box.agent.files.paths import LOOK, Paths, Place, Rule
from sandstream_providers.box.agent.files.single_files import make_parents, write_all
from sandstream_providers.box.agent.refused import Refused, from_os_error

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


KEPT_OPEN = 64


class Filler:
    """One batch at a time: the server sees to it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def fill(self, request: dict[str, Any], payload: bytes) -> None:
        folders = Folders(self._paths, self._paths.rule(request["rule"]))
        content = memoryview(payload)
        path = ""
        try:
            for path, kind, size, mode, target in request["entries"]:
                folder, name = folders.of(path)
                if kind == "file":
                    _put_file(folder, name, content[:size], mode)
                    content = content[size:]
                elif kind == "dir":
                    _put_folder(folder, name, mode)
                else:
                    _put_link(folder, name, wire.to_bytes(target))
        except OSError as error:
            raise from_os_error(error, path) from error
        finally:
            folders.close()


class Folders:
    """Directories that stay open while files are put into them."""

    def __init__(self, paths: Paths, rule: Rule) -> None:
        self._paths = paths
        self._rule = rule
        self._open: dict[str, Place] = {}

    def of(self, path: str) -> tuple[int, bytes]:
        """The directory that the path lies in, which is made if it is missing, and the name."""
        parent, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise Refused("PathEscapes", f"{path} does not name a file", reason="escape", path=path)
        raw = wire.to_bytes(name)
        place = self._open.get(parent)
        if place is None:
            place = self._below_an_open_one(parent, raw, path)
            if place is None:
                place = self._paths.resolve(
                    path, self._rule, write=True, follow=False, parents=True
                )
            if len(self._open) >= KEPT_OPEN:
                self.close()
            self._open[parent] = place
            make_parents(place)
        else:
            above = place.path[: -len(place.name)]
            self._rule.root_of(above + raw, path, write=True)
        return place.folder, raw

    def _below_an_open_one(self, parent: str, name: bytes, asked: str) -> Place | None:
        """Quickly, so that a deep tree is not walked again for each of its levels."""
        above, _, last = parent.rpartition("/")
        outer = self._open.get(above)
        if outer is None or last in ("", ".", ".."):
            return None
        raw = wire.to_bytes(last)
        try:
            fd = os.open(raw, LOOK | os.O_DIRECTORY, dir_fd=outer.folder)
        except OSError:
            return None  # missing, or a link
        place = Place(fd, name, outer.path[: -len(outer.name)] + raw + b"/" + name, None, [])
        try:
            place.root = self._rule.root_of(place.path, asked, write=True)
            place.refresh()
        except BaseException:
            place.close()
            raise
        return place

    def close(self) -> None:
        for place in self._open.values():
            place.close()
        self._open.clear()


def _put_file(folder: int, name: bytes, content: memoryview, mode: int) -> None:
    try:
        fd = os.open(name, NEW, 0o600, dir_fd=folder)
    except FileExistsError:
        os.unlink(name, dir_fd=folder)
        fd = os.open(name, NEW, 0o600, dir_fd=folder)
    try:
        write_all(fd, content, 0)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _put_folder(folder: int, name: bytes, mode: int) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=folder)
    except FileExistsError:
        pass  # if it is no directory the next line says so
    chmod_folder(folder, name, mode)


def _put_link(folder: int, name: bytes, target: bytes) -> None:
    try:
        os.symlink(target, name, dir_fd=folder)
    except FileExistsError:
        os.unlink(name, dir_fd=folder)
        os.symlink(target, name, dir_fd=folder)
