"""Many changes at once, all or none.

Contents are staged in a hidden directory below the root first. Then the changes are made one by
one, each leaving a note how to undo it; if one fails the notes are followed backwards.
"""

from __future__ import annotations

import os
import stat as modes

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.files.paths import (
    STAGE,
    Paths,
    Place,
    Rule,
    not_found,
    open_exactly,
)
from sandstream_providers.box.agent.files.single_files import (
    FOLDER_FLAGS,
    make_parents,
    remove_tree,
    write_all,
    wrong_kind,
)
from sandstream_providers.box.agent.refused import Refused, from_os_error

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable

    Undo = Callable[[int, bytes], None]
    """Called with the directory and the name of what was changed."""


NEW_MODE = 0o644
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Changer:
    """One batch at a time: the server sees to it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def clean_up(self) -> None:
        """What an agent that was killed left behind."""
        try:
            fd = os.open(self._paths.root, FOLDER_FLAGS)
        except OSError:
            return  # no root yet, or none at all: the first request will say so
        try:
            _remove_stage(fd)
        except OSError:
            pass  # nothing there, which is the rule
        finally:
            os.close(fd)

    def change(self, request: dict[str, Any], payload: bytes) -> None:
        batch = Batch(self._paths, self._paths.rule(request["rule"]))
        try:
            batch.make(request["changes"], memoryview(payload))
        finally:
            batch.close()


class Batch:
    """The work on one request."""

    def __init__(self, paths: Paths, rule: Rule) -> None:
        self._paths = paths
        self._rule = rule
        self._stages: dict[bytes, int] = {}
        self._undo: list[tuple[bytes, Undo]] = []
        self._at_last = False
        """Nothing can fail after the last change: it needs no undo."""
        self._parents: set[str] = set()
        """Directories that changes of this batch make if they are missing."""
        self._number = 0
        self._last_parent: tuple[str, Place] | None = None

    def make(self, changes: list[dict[str, Any]], content: memoryview) -> None:
        staged: list[tuple[bytes, bytes] | None] = []
        touched: set[str] = set()
        start = 0
        path = ""
        try:
            for change in changes:
                path = change["path"]
                size = change["size"]
                staged.append(self._prepare(change, content[start : start + size], touched))
                start += size
            for change, file in zip(changes, staged):
                path = change["path"]
                self._at_last = change is changes[-1]
                self._apply(change, file)
        except (OSError, Refused) as error:
            self._roll_back()
            if isinstance(error, OSError):
                raise from_os_error(error, path) from error
            raise

    def close(self) -> None:
        self._forget_parent()
        for root, fd in self._stages.items():
            os.close(fd)
            try:
                folder = os.open(root, FOLDER_FLAGS)
                try:
                    _remove_stage(folder)
                finally:
                    os.close(folder)
            except OSError:
                pass  # a command got in the way; the next batch removes it

    # --- before -----------------------------------------------------------------------------------

    def _prepare(
        self, change: dict[str, Any], content: memoryview, touched: set[str]
    ) -> tuple[bytes, bytes] | None:
        """Check what does not hang on earlier changes of the batch, and stage the content."""
        path, kind = change["path"], change["kind"]
        above = _above(path)
        if path in touched or path in self._parents or not touched.isdisjoint(above):
            root = self._rule.root_of(self._paths.real(path), path, write=True)
        else:
            with self._place(change, follow=_follows(change)) as place:
                _check(change, place)
                root = place.root
        touched.add(path)
        self._parents |= above
        if kind == "move":
            touched.add(change["target"])
            self._parents |= _above(change["target"])
        if kind != "file":
            return None
        return root, self._stage(root, content, change["mode"])

    def _resolve(self, change: dict[str, Any]) -> Place:
        return self._paths.resolve(
            change["path"], self._rule, write=True, follow=_follows(change), parents=True
        )

    def _stage(self, root: bytes, content: memoryview, mode: int | None) -> bytes:
        """Write a file's content below this root; gives its name there."""
        name = self._free_name()
        fd = os.open(name, NEW, 0o600, dir_fd=self._stage_folder(root))
        try:
            write_all(fd, content, 0)
            os.fchmod(fd, NEW_MODE if mode is None else mode)
        finally:
            os.close(fd)
        return name

    def _stage_folder(self, root: bytes) -> int:
        if root not in self._stages:
            above = os.open(root, FOLDER_FLAGS)
            try:
                try:
                    os.mkdir(STAGE, 0o700, dir_fd=above)
                except FileExistsError:
                    _remove_stage(above)
                    os.mkdir(STAGE, 0o700, dir_fd=above)
                self._stages[root] = os.open(STAGE, FOLDER_FLAGS, dir_fd=above)
            finally:
                os.close(above)
        return self._stages[root]

    def _free_name(self) -> bytes:
        self._number += 1
        return b"%d" % self._number

    # --- making -----------------------------------------------------------------------------------

    def _place(self, change: dict[str, Any], *, follow: bool) -> Place:
        """As ``resolve``, but quick for many files of one directory."""
        path = change["path"]
        parent, _, name = path.rpartition("/")
        last = self._last_parent
        plain = follow and parent and name not in ("", ".", "..")
        if plain and last is not None and last[0] == parent:
            folder = last[1]
            raw = wire.to_bytes(name)
            place = Place(os.dup(folder.folder), raw, folder.path + b"/" + raw, None, [])
            place.refresh()
            if place.facts is None or not modes.S_ISLNK(place.facts.st_mode):
                try:
                    place.root = self._rule.root_of(place.path, path, write=True)
                except Refused:
                    place.close()
                    raise
                return place
            place.close()
        place = self._paths.resolve(path, self._rule, write=True, follow=follow, parents=True)
        self._forget_parent()
        if plain and not place.missing and place.name == wire.to_bytes(name):
            above = Place(os.dup(place.folder), b".", place.path.rpartition(b"/")[0], None, [])
            self._last_parent = (parent, above)
        return place

    def _forget_parent(self) -> None:
        if self._last_parent is not None:
            self._last_parent[1].close()
            self._last_parent = None

    def _apply(self, change: dict[str, Any], staged: tuple[bytes, bytes] | None) -> None:
        kind = change["kind"]
        if kind == "file":
            assert staged is not None
            self._put_file(change, staged)
            return
        self._forget_parent()  # what follows may change what a path means
        with self._resolve(change) as place:
            _check(change, place)
            {
                "dir": self._put_dir,
                "link": self._put_link,
                "remove": self._remove,
                "move": self._move,
            }[kind](change, place)

    def _put_file(self, change: dict[str, Any], staged: tuple[bytes, bytes]) -> None:
        root, name = staged
        with self._place(change, follow=_follows(change)) as place:
            _check(change, place)
            stage = self._stages[root]
            if place.facts is not None:
                _keep_owner(stage, name, place.facts)
            if place.facts is not None and change["mode"] is None:
                mode = modes.S_IMODE(place.facts.st_mode)
                if mode != NEW_MODE:
                    os.chmod(name, mode, dir_fd=stage)
            self._make_parents(place)
            self._set_aside(place, root)
            os.rename(name, place.name, src_dir_fd=stage, dst_dir_fd=place.folder)

    def _put_dir(self, change: dict[str, Any], place: Place) -> None:
        mode = change["mode"]
        if place.facts is not None:
            if mode is not None:
                before = modes.S_IMODE(place.facts.st_mode)
                chmod_folder(place.folder, place.name, mode)
                self._note(place, lambda folder, name: chmod_folder(folder, name, before))
            return
        self._make_parents(place)
        os.mkdir(place.name, 0o755, dir_fd=place.folder)
        self._note(place, _remove_folder)
        if mode is not None:
            chmod_folder(place.folder, place.name, mode)

    def _put_link(self, change: dict[str, Any], place: Place) -> None:
        self._make_parents(place)
        self._set_aside(place, place.root)
        stage = self._stage_folder(place.root)
        name = self._free_name()
        os.symlink(wire.to_bytes(change["target"]), name, dir_fd=stage)
        os.rename(name, place.name, src_dir_fd=stage, dst_dir_fd=place.folder)

    def _remove(self, change: dict[str, Any], place: Place) -> None:
        if place.facts is None:
            return
        if place.path == place.root:
            raise Refused(
                "NotPermitted", "{} is a root and stays".format(change["path"]), path=change["path"]
            )
        name = self._free_name()
        stage = self._stage_folder(place.root)
        os.rename(place.name, name, src_dir_fd=place.folder, dst_dir_fd=stage)
        self._note(place, lambda folder, back: _put_back(stage, name, folder, back))

    def _move(self, change: dict[str, Any], place: Place) -> None:
        if place.path == place.root:
            raise Refused(
                "NotPermitted", "{} is a root and stays".format(change["path"]), path=change["path"]
            )
        with self._paths.resolve(
            change["target"], self._rule, write=True, follow=False, parents=True
        ) as target:
            self._make_parents(target)
            if target.facts is not None and target.is_dir():
                raise wrong_kind(change["target"], "exists and is a directory")
            self._set_aside(target, target.root)
            os.rename(place.name, target.name, src_dir_fd=place.folder, dst_dir_fd=target.folder)
            self._note(target, lambda folder, name: self._move_back(folder, name, place.path))

    def _move_back(self, folder: int, name: bytes, path: bytes) -> None:
        parent, _, original = path.rpartition(b"/")
        above = open_exactly(parent)
        try:
            os.rename(name, original, src_dir_fd=folder, dst_dir_fd=above)
        finally:
            os.close(above)

    # --- undoing ----------------------------------------------------------------------------------

    def _note(self, place: Place, undo: Undo) -> None:
        if not self._at_last:
            self._undo.append((place.path, undo))

    def _make_parents(self, place: Place) -> None:
        made: list[bytes] = []
        try:
            make_parents(place, made)
        finally:
            self._undo += [(path, _remove_folder) for path in made]

    def _set_aside(self, place: Place, root: bytes) -> None:
        """Keep what will be replaced, in case a later change fails."""
        if self._at_last:
            return
        if place.facts is None:
            self._note(place, lambda folder, name: os.unlink(name, dir_fd=folder))
            return
        kept = self._free_name()
        stage = self._stage_folder(root)
        try:
            os.link(
                place.name, kept, src_dir_fd=place.folder, dst_dir_fd=stage, follow_symlinks=False
            )
        except PermissionError:  # links to files of other users are forbidden
            os.rename(place.name, kept, src_dir_fd=place.folder, dst_dir_fd=stage)
        self._note(place, lambda folder, name: _put_back(stage, kept, folder, name))

    def _roll_back(self) -> None:
        while self._undo:
            path, undo = self._undo.pop()
            parent, _, name = path.rpartition(b"/")
            try:
                folder = open_exactly(parent)
                try:
                    undo(folder, name)
                finally:
                    os.close(folder)
            except OSError:
                pass  # a command changed the same thing meanwhile: its change stays


def _remove_stage(root: int) -> None:
    try:
        remove_tree(root, STAGE)
    except NotADirectoryError:
        os.unlink(STAGE, dir_fd=root)  # a file or link of this name that is not ours


def _put_back(stage: int, kept: bytes, folder: int, name: bytes) -> None:
    os.rename(kept, name, src_dir_fd=stage, dst_dir_fd=folder)


def _remove_folder(folder: int, name: bytes) -> None:
    os.rmdir(name, dir_fd=folder)


def _keep_owner(folder: int, name: bytes, before: os.stat_result) -> None:
    """A file that is replaced stays whose it was. Only root can see to that."""
    now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid) or os.geteuid() != 0:
        return
    os.chown(name, before.st_uid, before.st_gid, dir_fd=folder, follow_symlinks=False)
    os.chmod(name, modes.S_IMODE(now.st_mode), dir_fd=folder)  # chown took special bits away


def _follows(change: dict[str, Any]) -> bool:
    """Does the change apply to the target of a link? An exclusive one finds the link in its way."""
    return change["kind"] in ("file", "dir") and not change["exclusive"]


def _check(change: dict[str, Any], place: Place) -> None:
    kind = change["kind"]
    if change["exclusive"] and place.facts is not None:
        raise wrong_kind(change["path"], "exists")
    if place.facts is None:
        if change["must_exist"] or kind == "move":
            raise not_found(change["path"])
    elif kind == "file" and not place.is_file():
        raise wrong_kind(change["path"], "exists and is not a file")
    elif kind == "dir" and not place.is_dir():
        raise wrong_kind(change["path"], "exists and is not a directory")
    elif kind == "link" and place.is_dir():
        raise wrong_kind(change["path"], "exists and is a directory")


def chmod_folder(folder: int, name: bytes, mode: int) -> None:
    fd = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _above(path: str) -> set[str]:
    parts = path.split("/")
    return {"/".join(parts[:count]) for count in range(2, len(parts))}
