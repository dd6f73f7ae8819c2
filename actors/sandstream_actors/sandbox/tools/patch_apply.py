"""Applies a patch to a live box: all of it or nothing.

Every operation is first applied in memory, in order, to the current files; then one change of the
box writes the result. So an operation sees the effects of earlier ones.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from sandstream_bus.wire.sandboxes import PatchOperation
from sandstream_providers.interface import (
    Box,
    BoxGone,
    Entry,
    FileWrite,
    NotFound,
    PathEscapes,
    ProviderError,
    ResolveRule,
)

from sandstream_actors.sandbox.tools import paths
from sandstream_actors.sandbox.tools.patch_diff import created_text, updated_text
from sandstream_actors.sandbox.tools.patch_errors import (
    PatchDecodeError,
    PatchDiffError,
    PatchError,
    PatchFileNotFound,
    PatchPathError,
)

MAX_FILE_BYTES = 64 * 1024 * 1024
"""The limit for a file to update: its text is held in memory."""


class _Target(NamedTuple):
    """A path of an operation."""

    written: str
    """As the model wrote it."""
    absolute: str
    shown: str


class _Step(NamedTuple):
    operation: PatchOperation
    target: _Target
    move_to: _Target | None


async def apply_patch(
    box: Box,
    rule: ResolveRule,
    root: str,
    cwd: str,
    operations: Sequence[PatchOperation],
    *,
    op: str,
) -> str:
    """Apply the operations; return one line for each thing that was done.

    Raises:
        PatchError: and nothing was changed.
    """
    steps = [_step(operation, root, cwd) for operation in operations]
    outcome = "\n".join(_line(step) for step in steps)
    draft = _Draft(box, rule, root, decode_errors_show_input=not paths.is_root(cwd, root))
    try:
        for step in steps:
            await _within_root(draft.do(step), step)
        await draft.put_in_place(op)
    except PatchError:
        # After a lost answer the patch is applied again, and does not fit any more because it is
        # already applied.
        if await _was_done(box, rule, root, op):
            return outcome
        raise
    return outcome


async def _within_root(work: Awaitable[None], step: _Step) -> None:
    """A link that leads out is reported by the path that the model wrote."""
    try:
        await work
    except PathEscapes as error:
        raise PatchPathError(step.target.written, "escape_root") from error


def _step(operation: PatchOperation, root: str, cwd: str) -> _Step:
    target = _target(operation.path, root, cwd)
    move_to = _target(operation.move_to, root, cwd) if operation.move_to else None
    return _Step(operation, target, move_to)


def _target(path: str, root: str, cwd: str) -> _Target:
    if not path.strip():
        raise PatchPathError(path, "empty")
    try:
        absolute = paths.in_workspace(path, root, cwd)
    except paths.PathNotAllowed:
        raise PatchPathError(path, "escape_root") from None
    return _Target(path, absolute, paths.shown(path, absolute, root, cwd))


def _line(step: _Step) -> str:
    name = step.target.shown
    match step.operation.kind:
        case "create_file":
            return f"Created {name}"
        case "delete_file":
            return f"Deleted {name}"
        case "update_file" if step.move_to is not None:
            return f"Updated {name}\nMoved {name} to {step.move_to.shown}"
        case "update_file":
            return f"Updated {name}"


async def _was_done(box: Box, rule: ResolveRule, root: str, op: str) -> bool:
    """Whether the box knows the change of this operation.

    Probe with an impossible change: the box returns the stored outcome if it knows the id.
    """
    absent = posixpath.join(root, f".absent-{hashlib.sha256(op.encode()).hexdigest()}")
    try:
        await box.change(op, [FileWrite(path=absent, kind="remove", must_exist=True)], rule)
    except BoxGone:
        raise
    except ProviderError:
        return False
    return True


class _File:
    """The current and the future content of one path."""

    def __init__(self, found: Entry | None) -> None:
        self.found = found
        self.data: bytes | None = None
        """None: removed, or not read yet."""
        self.is_read = found is None
        self.is_changed = False
        self.mode: int | None = None

    @property
    def exists(self) -> bool:
        return self.data is not None if self.is_read else self.found is not None

    def check_kind(self, target: _Target) -> None:
        if self.found is not None and self.found.kind != "file" and not self.is_changed:
            raise PatchDiffError(
                f"apply_patch works on files only, and {target.shown} is something else "
                f"({self.found.kind}).",
                path=target.written,
            )

    def put(self, data: bytes | None) -> None:
        self.data = data
        self.is_read = True
        self.is_changed = True


class _Draft:
    """The files that the patch is about, as they will be."""

    def __init__(
        self, box: Box, rule: ResolveRule, root: str, *, decode_errors_show_input: bool
    ) -> None:
        self._box = box
        self._rule = rule
        self._root = posixpath.normpath(root)
        self._shows_input = decode_errors_show_input
        self._files: dict[str, _File] = {}
        self._places: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    async def do(self, step: _Step) -> None:
        match step.operation.kind:
            case "create_file":
                await self._create(step)
            case "delete_file":
                await self._delete(step)
            case "update_file":
                await self._update(step)

    async def put_in_place(self, op: str) -> None:
        """One change; removals first, so that their names are free."""
        removals, writes = [], []
        for place, file in self._files.items():
            if not file.is_changed:
                continue
            is_link = file.found is not None and file.found.path != place
            if file.found is not None and (file.data is None or is_link):
                removals.append(FileWrite(path=place, kind="remove", must_exist=True))
            if file.data is not None:
                is_new = file.found is None or is_link
                writes.append(
                    FileWrite(path=place, data=file.data, mode=file.mode, exclusive=is_new)
                )
        changes = [*removals, *writes]
        if changes:
            await self._box.change(op, changes, self._rule)

    async def _create(self, step: _Step) -> None:
        data = _encoded(_patched(step, None), step)
        # The name itself must be free: a link there is not followed.
        file = await self._file(await self._name(step.target))
        if file.exists:
            raise PatchDiffError(
                f"apply_patch cannot create {step.target.shown} because it already exists. "
                "Use an update_file operation to change an existing file.",
                path=step.target.shown,
            )
        file.put(data)

    async def _delete(self, step: _Step) -> None:
        file = await self._file(await self._place(step.target))
        if not file.exists:
            raise PatchFileNotFound(paths.tidy(step.target.shown))
        file.check_kind(step.target)
        (await self._file(await self._name(step.target))).put(None)

    async def _update(self, step: _Step) -> None:
        source_place = await self._place(step.target)
        source = await self._file(source_place)
        text = await self._text(source, source_place, step.target)
        data = _encoded(_patched(step, text), step)
        if step.move_to is None:
            source.put(data)
            return
        place = await self._place(step.move_to)
        target = await self._file(place)
        target.check_kind(step.move_to)
        if place != source_place:
            name = await self._file(await self._name(step.target))
            if target.found is None:
                target.mode = source.mode if source.found is None else source.found.mode
            name.put(None)
        target.put(data)

    async def _text(self, file: _File, place: str, target: _Target) -> str:
        if not file.exists:
            raise PatchFileNotFound(paths.tidy(target.written))
        file.check_kind(target)
        if not file.is_read:
            if file.found is not None and file.found.size > MAX_FILE_BYTES:
                raise PatchDiffError(
                    f"apply_patch cannot update {target.shown}: it has {file.found.size} bytes, "
                    f"and at most {MAX_FILE_BYTES} are possible. Edit it with a shell command.",
                    path=target.written,
                )
            file.data = await self._box.read(place, self._rule)
            file.is_read = True
        try:
            return (file.data or b"").decode()
        except UnicodeDecodeError:
            name = place
            if self._shows_input:
                name = target.written if paths.is_absolute(target.written) else target.shown
            raise PatchDecodeError(paths.tidy(name)) from None

    async def _file(self, place: str) -> _File:
        if place not in self._files:
            self._files[place] = _File(await self._stat(place))
        return self._files[place]

    async def _place(self, target: _Target) -> str:
        """Where the content is: links are followed, and two spellings of one file are one."""
        name = await self._name(target)
        if name in self._files and self._files[name].is_changed:
            return name
        if name not in self._places:
            found = await self._stat(name)
            self._places[name] = name if found is None else found.path
        return self._places[name]

    async def _name(self, target: _Target) -> str:
        """The entry itself: only the directories on the way to it are resolved."""
        if target.absolute == self._root:
            return target.absolute
        folder, name = posixpath.split(target.absolute)
        return posixpath.join(await self._folder(folder), name)

    async def _folder(self, path: str) -> str:
        if path not in self._folders:
            found = await self._stat(path)
            if found is not None:
                self._folders[path] = found.path
            elif path == self._root:
                self._folders[path] = path
            else:
                parent, name = posixpath.split(path)
                self._folders[path] = posixpath.join(await self._folder(parent), name)
        return self._folders[path]

    async def _stat(self, path: str) -> Entry | None:
        try:
            return await self._box.stat(path, self._rule)
        except NotFound:
            return None


def _patched(step: _Step, text: str | None) -> str:
    diff = step.operation.diff
    try:
        return created_text(diff) if text is None else updated_text(text, diff)
    except PatchDiffError as error:
        raise PatchDiffError(str(error), path=step.target.written) from None


def _encoded(text: str, step: _Step) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise PatchDiffError(
            f"The diff has a character that no file can hold: {error.reason}",
            path=step.target.written,
        ) from None
