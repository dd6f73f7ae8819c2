"""What a turn changed in the files, as text: its checkpoint compared with what was before."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sandstream_bus.wire.sandboxes import WorkspacePlan
from sandstream_bus.wire.sessions import SessionTurn
from sandstream_providers.interface import Entry
from sandstream_workspaces.store import WorkspaceStore
from textual.content import Content

from sandstream._inspect.visible_text import clean, one_line
from sandstream.client import Client
from sandstream.tui.conversation.starting_files import StartingFiles, start_of

MOST_FILES = 40
_MOST_BYTES = 200_000
_MOST_LINES = 400


class FileChange:
    """One file that a turn changed.

    Args:
        path: Its path in the workspace.
        mark: ``A`` added, ``M`` changed, ``D`` removed.
        lines: The unified difference; empty: it is not shown.
    """

    def __init__(self, path: str, mark: str, lines: list[str]) -> None:
        self.path = path
        self.mark = mark
        self.lines = lines


async def turn_changes(
    client: Client, before: str | StartingFiles | None, after: str
) -> tuple[list[FileChange], int]:
    """The files that differ between two checkpoints, and how many are not among them.

    Args:
        client: The connection.
        before: The earlier checkpoint, or the files that the workspace began with; None: nothing.
        after: The later checkpoint.
    """
    store = WorkspaceStore(client.bus)
    before = before or StartingFiles(store, WorkspacePlan())
    if isinstance(before, StartingFiles):
        found = await before.difference(after)
    else:
        found = await store.diff(before, after)
    marked = [
        *((it, "A") for it in found.added),
        *((it, "M") for it in found.changed),
        *((it, "D") for it in found.removed),
    ]
    changes = []
    for path, mark in marked[:MOST_FILES]:
        old = await _old_content(store, before, path) if mark != "A" else b""
        new = await _content(store, after, path) if mark != "D" else b""
        changes.append(FileChange(path, mark, unified(old, new)))
    return changes, max(0, len(marked) - MOST_FILES)


async def _old_content(
    store: WorkspaceStore, before: str | StartingFiles, path: str
) -> bytes | None:
    if not isinstance(before, StartingFiles):
        return await _content(store, before, path)
    return await before.content(path) if _is_shown(before.entry(path)) else None


async def _content(store: WorkspaceStore, tree: str, path: str) -> bytes | None:
    """A file's content; None: it is too big, or not a file."""
    entry = await store.lookup(tree, path)
    if entry is None or not _is_shown(entry):
        return None
    return b"".join([piece async for piece in store.read_file(tree, path)])


def _is_shown(entry: Entry) -> bool:
    return entry.kind == "file" and entry.size <= _MOST_BYTES


def unified(old: bytes | None, new: bytes | None) -> list[str]:
    """The difference of two texts, as lines; none for what is not text."""
    if old is None or new is None or b"\0" in old or b"\0" in new:
        return []
    before = old.decode("utf-8", "replace").splitlines()
    after = new.decode("utf-8", "replace").splitlines()
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines"]
    return lines


def changes_content(changes: Sequence[FileChange], more: int) -> Content:
    """The changes as they are shown."""
    if not changes:
        return Content("no file has changed")
    styles = {"A": "bold $success", "M": "bold $warning", "D": "bold $error"}
    parts: list[str | tuple[str, str]] = []
    for it in changes:
        parts.append((f"{it.mark} {one_line(it.path)}\n", styles[it.mark]))
        for line in it.lines:
            style = {"+": "$success", "-": "$error", "@": "$secondary"}.get(line[:1], "dim")
            parts.append((f"  {clean(line).expandtabs(4)}\n", style))
    if more:
        parts.append((f"… and {more} more files\n", "dim"))
    return Content.assemble(*parts)


async def files_before(
    client: Client, turns: Sequence[SessionTurn], number: int
) -> str | StartingFiles | None:
    """The checkpoint before a turn; without one, the files that the workspace began with. None:
    neither is known.

    Args:
        client: The connection.
        turns: The finished turns that count.
        number: The turn.
    """
    known = {it.number: it for it in turns}
    turn = known[number]
    seen: set[int] = set()
    while turn.number not in seen:
        seen.add(turn.number)
        earlier = known.get(turn.after)
        if earlier is None:
            return await start_of(client, turn.run)
        if earlier.tree:
            return earlier.tree
        turn = earlier
    return None


def since_text(before: str | StartingFiles | None) -> str:
    """What the changes are compared with, for the title; empty: the checkpoint before.

    Args:
        before: What :func:`files_before` has found.
    """
    if before is None:
        return " (no earlier checkpoint is known: all files)"
    if isinstance(before, StartingFiles) and before.has_repositories:
        return " (since the start; files of repositories count as added)"
    return " (since the start)" if isinstance(before, StartingFiles) else ""
