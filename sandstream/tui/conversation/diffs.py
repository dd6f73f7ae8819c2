"""What a turn changed in the files: two checkpoints compared, as text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sandstream_bus.wire.sessions import SessionTurn
from sandstream_workspaces.store import Difference, WorkspaceStore
from textual.content import Content

from sandstream._inspect.visible_text import clean, one_line
from sandstream.client import Client

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


async def turn_changes(client: Client, before: str, after: str) -> tuple[list[FileChange], int]:
    """The files that differ between two checkpoints, and how many are not among them.

    Args:
        client: The connection.
        before: The earlier checkpoint; empty: nothing.
        after: The later checkpoint.
    """
    store = WorkspaceStore(client.bus)
    if before:
        found = await store.diff(before, after)
    else:
        paths = sorted(it.path for it in await store.entries(after) if it.kind != "dir")
        found = Difference(added=paths, changed=[], removed=[])
    marked = [
        *((it, "A") for it in found.added),
        *((it, "M") for it in found.changed),
        *((it, "D") for it in found.removed),
    ]
    changes = []
    for path, mark in marked[:MOST_FILES]:
        old = await _content(store, before, path) if mark != "A" else b""
        new = await _content(store, after, path) if mark != "D" else b""
        changes.append(FileChange(path, mark, unified(old, new)))
    return changes, max(0, len(marked) - MOST_FILES)


async def _content(store: WorkspaceStore, tree: str, path: str) -> bytes | None:
    """A file's content; None: it is too big, or not a file."""
    entry = await store.lookup(tree, path) if tree else None
    if entry is None or entry.kind != "file" or entry.size > _MOST_BYTES:
        return None
    return b"".join([piece async for piece in store.read_file(tree, path)])


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


def tree_before(turns: Sequence[SessionTurn], number: int) -> str:
    """The checkpoint that a turn began with; empty: none is known."""
    known = {it.number: it for it in turns}
    turn = known.get(number)
    seen: set[int] = set()
    while turn is not None and turn.number not in seen:
        seen.add(turn.number)
        turn = known.get(turn.after)
        if turn is not None and turn.tree:
            return turn.tree
    return ""
