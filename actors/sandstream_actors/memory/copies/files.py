"""The files of a memory in a box: read without trust, written completely.

Processes in the box can put anything in their place: links, directories, files of any size. Links
are never followed, and nothing outside of the workspace is read or written.
"""

from __future__ import annotations

import asyncio
import posixpath
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

import msgspec
from sandstream_bus.wire.sandboxes import MemoryMount
from sandstream_memory.layout import (
    MARKER_FILE,
    MEMORIES,
    Files,
    check_layout,
    is_editable,
    is_valid_path,
    to_canonical,
    to_workspace,
)
from sandstream_providers.interface import (
    Box,
    Entry,
    FileWrite,
    NotFound,
    NotPermitted,
    PathEscapes,
    ResolveRule,
    WrongKind,
)

from sandstream_actors.memory.copies.decisions import ALWAYS_THERE
from sandstream_actors.memory.copies.marker import Laid, parse_marker

MAX_FILE_BYTES = 1024 * 1024
MAX_TEXT_BYTES = 8 * 1024 * 1024
MAX_TEXTS = 1000
MAX_ENTRIES = 20_000
MAX_DEPTH = 8
_MARKER_BYTES = 8 * 1024 * 1024
_MODE = 0o644


class MemoryTrouble(Exception):
    """A memory cannot be written to the workspace; the message says what to do."""


class Found(msgspec.Struct):
    """The files in the memory's directories of a workspace. Paths are canonical."""

    marker: Laid | None = None
    texts: dict[str, bytes] = {}
    """Editable files that can be taken over."""
    sizes: dict[str, int] = {}
    """All other files."""
    odd: dict[str, str] = {}
    """Files that are not taken over, and why."""
    barriers: list[str] = []
    """Links and files that block the directories, as absolute paths: they must be removed."""

    def among(self, paths: Set[str]) -> set[str]:
        """Those of the paths that are files here."""
        return {path for path in paths if path in self.texts or path in self.sizes}


class Folder:
    """The memory's directories of one workspace."""

    def __init__(self, box: Box, mount: MemoryMount) -> None:
        check_layout(mount.memories_dir, mount.sessions_dir)
        self._box = box
        self._mount = mount
        self._rule = ResolveRule(roots=[box.root])

    def path(self, canonical: str) -> str:
        return posixpath.join(self._box.root, to_workspace(canonical, self._mount))

    # --- finding -------------------------------------------------------------------------------

    async def survey(self, known: Collection[str], *, was_there: bool = False) -> Found:
        """Scan the directories. ``known``: paths that must be files, so that a directory there is
        misplaced. ``was_there``: the memory was written here before, so that a file in the place of
        its directories came later. A file that was there first must not be removed.
        """
        found = Found()
        blocking: list[str] = []
        files: dict[str, Entry] = {}
        root = (await self._box.stat(self._box.root, self._rule)).path
        places = {*ALWAYS_THERE, MARKER_FILE, *known}
        folders = {self._mount.memories_dir, self._mount.sessions_dir}

        async def look(folder: str) -> None:
            if await self._is_plain(root, folder, found, blocking):
                await self._walk(folder, 0, places, files, found)

        await asyncio.gather(*map(look, sorted(map(posixpath.normpath, folders))))
        for path in files.keys() - found.odd.keys():
            if not is_editable(path):
                found.sizes[path] = files[path].size
        await asyncio.gather(self._read_texts(files, found), self._read_marker(found))
        if blocking and not was_there and found.marker is None:
            raise MemoryTrouble(
                f"{blocking[0]} is in the way of the memory: move it, or give the memory another "
                "layout"
            )
        found.barriers = [*dict.fromkeys([*found.barriers, *blocking])]
        return found

    async def _is_plain(self, root: str, folder: str, found: Found, blocking: list[str]) -> bool:
        """Is there such a directory, without a link on the way to it?"""
        try:
            entry = await self._box.stat(posixpath.join(self._box.root, folder), self._rule)
        except (NotFound, PathEscapes, WrongKind):
            pass
        else:
            if entry.kind == "dir" and entry.path == posixpath.join(root, folder):
                return True
        await self._look_for_barriers(folder, found, blocking)
        return False

    async def _look_for_barriers(self, folder: str, found: Found, blocking: list[str]) -> None:
        parent = self._box.root
        for name in folder.split("/"):
            entries = {it.path: it for it in await self._box.list(parent, self._rule)}
            parent = posixpath.join(parent, name)
            entry = entries.get(name)
            if entry is None:
                return
            if entry.kind == "dir":
                continue
            (found.barriers if entry.kind == "link" else blocking).append(parent)
            return

    async def _walk(
        self,
        folder: str,
        depth: int,
        places: Collection[str],
        files: dict[str, Entry],
        found: Found,
    ) -> None:
        try:
            entries = await self._box.list(posixpath.join(self._box.root, folder), self._rule)
        except (NotFound, PathEscapes, WrongKind):
            return  # it was changed meanwhile
        except NotPermitted:
            self._is_odd(found, folder, "cannot be read")
            return
        if len(files) + len(entries) > MAX_ENTRIES:
            raise MemoryTrouble(
                f"there are more than {MAX_ENTRIES} files in {self._mount.memories_dir} and "
                f"{self._mount.sessions_dir}: remove those that are not memory"
            )
        deeper: list[str] = []
        for entry in entries:
            inner = f"{folder}/{entry.path}"
            path = to_canonical(inner, self._mount)
            if path is None:
                continue
            if not is_valid_path(path):
                self._is_odd(found, inner, "has a name that cannot be kept")
            elif entry.kind == "dir" and path not in places:
                if depth < MAX_DEPTH:
                    deeper.append(inner)
                else:
                    self._is_odd(found, inner, f"is more than {MAX_DEPTH} directories deep")
            elif entry.kind == "file":
                files[path] = entry
            else:
                what = {"dir": "a directory", "link": "a link"}.get(entry.kind, "not a file")
                self._is_odd(found, inner, f"is {what}")
        walks = (self._walk(inner, depth + 1, places, files, found) for inner in deeper)
        await asyncio.gather(*walks)

    def _is_odd(self, found: Found, inner: str, why: str) -> None:
        path = to_canonical(inner, self._mount)
        if path is not None:
            found.odd[path] = why

    async def _read_texts(self, files: Mapping[str, Entry], found: Found) -> None:
        wanted: list[str] = []
        total = 0
        for path in sorted(filter(is_editable, files), key=lambda it: (it not in ALWAYS_THERE, it)):
            size = files[path].size
            if size > MAX_FILE_BYTES:
                found.odd[path] = f"is bigger than {MAX_FILE_BYTES} bytes"
            elif len(wanted) == MAX_TEXTS or total + size > MAX_TEXT_BYTES:
                found.odd[path] = "is too much: all together are too many or too big"
            else:
                wanted.append(path)
                total += size
        for path, data in zip(wanted, await asyncio.gather(*map(self._text, wanted)), strict=True):
            if isinstance(data, bytes):
                found.texts[path] = data
            elif data:
                found.odd[path] = data

    async def _text(self, path: str) -> bytes | str:
        """Its content, or why it cannot be read; an empty reason: it disappeared meanwhile."""
        limit = MAX_FILE_BYTES + 1
        try:
            data = await self._box.read(self.path(path), self._rule, limit=limit)
        except NotFound:
            return ""
        except (NotPermitted, PathEscapes, WrongKind):
            return "cannot be read"
        if len(data) > MAX_FILE_BYTES:
            return f"is bigger than {MAX_FILE_BYTES} bytes"
        try:
            data.decode()
        except UnicodeDecodeError:
            return "is not UTF-8"
        return data

    async def differs(self, found: Found, paths: Iterable[str]) -> bool:
        """Was one of these texts changed since the scan?"""
        known = [path for path in paths if path in found.texts]
        now = await asyncio.gather(*map(self._text, known))
        return any(data != found.texts[path] for path, data in zip(known, now, strict=True))

    async def _read_marker(self, found: Found) -> None:
        if not 0 < found.sizes.get(MARKER_FILE, 0) <= _MARKER_BYTES:
            return
        try:
            data = await self._box.read(self.path(MARKER_FILE), self._rule, limit=_MARKER_BYTES)
        except (NotFound, NotPermitted, PathEscapes, WrongKind):
            return  # counts as absent
        found.marker = parse_marker(data)

    # --- writing -------------------------------------------------------------------------------

    async def write(
        self, files: Files, removed: Iterable[str], found: Found, *, folders: Sequence[str] = ()
    ) -> None:
        """Write all or nothing, unless the box is killed meanwhile. Files that block a path are
        removed, and ``found`` is updated.

        Each file is replaced in one step, so that no reader sees a partial file. The handbook and
        its summary are replaced one right after the other, and the marker last: if the box dies at
        any point, no file is older than the marker says, so no old file looks like a change.
        """
        gone = [FileWrite(path=it, kind="remove") for it in found.barriers]
        found.barriers = []
        for path in self._in_the_way([*files, *folders], found):
            gone.append(FileWrite(path=self.path(path), kind="remove"))
            for known in (found.odd, found.texts, found.sizes):
                known.pop(path, None)
        gone += [FileWrite(path=self.path(path), kind="remove") for path in sorted(removed)]
        puts = [FileWrite(path=self.path(path).rstrip("/"), kind="dir") for path in folders]
        puts += [
            FileWrite(path=self.path(path), data=data, mode=_MODE)
            for path, data in sorted(files.items(), key=lambda it: _turn(it[0]))
        ]
        await self._box.change(f"memory-{uuid.uuid4().hex}", [*gone, *puts], self._rule)

    def _in_the_way(self, paths: Iterable[str], found: Found) -> list[str]:
        ways = set()
        for path in paths:
            parts = path.split("/")  # a folder's path ends with a slash
            above = {"/".join(parts[:count]) for count in range(2, len(parts))}
            ways |= {it for it in above if it in found.texts or it in found.sizes}
            ways |= {it for it in (*above, path) if it in found.odd}
        return sorted(ways)


def _turn(path: str) -> tuple[bool, bool, str]:
    return path == MARKER_FILE, path in ALWAYS_THERE, path


def said_of(odd: Mapping[str, str]) -> str:
    """For the log."""
    shown = [f"{path} {why}" for path, why in sorted(odd.items()) if path.startswith(MEMORIES)]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return "; ".join(shown[:5]) + more
