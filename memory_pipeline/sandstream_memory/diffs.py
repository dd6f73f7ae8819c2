"""Show a change of a memory as a diff, and undo it."""

from __future__ import annotations

import difflib

from sandstream_memory.layout import Files, is_editable
from sandstream_memory.three_way_merge import merge_files

_MAX_DIFFED_BYTES = 1024 * 1024


def unified(before: Files, after: Files) -> str:
    """A unified diff of all files that differ; empty if there are none."""
    parts = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old != new:
            parts.append(_file_diff(path, old, new))
    return "".join(parts)


def _file_diff(path: str, old: bytes | None, new: bytes | None) -> str:
    labels = (
        "/dev/null" if old is None else f"a/{path}",
        "/dev/null" if new is None else f"b/{path}",
    )
    sizes = f"{len(old or b'')} -> {len(new or b'')} bytes"
    if max(len(old or b""), len(new or b"")) > _MAX_DIFFED_BYTES:
        return f"--- {labels[0]}\n+++ {labels[1]}\n(too big for a diff: {sizes})\n"
    try:
        texts = (old or b"").decode(), (new or b"").decode()
    except UnicodeDecodeError:
        return f"--- {labels[0]}\n+++ {labels[1]}\n(no text: {sizes})\n"
    lines = difflib.unified_diff(_lines(texts[0]), _lines(texts[1]), *labels, lineterm="")
    found = "\n".join(lines)
    return f"{found}\n" if found else f"--- {labels[0]}\n+++ {labels[1]}\n"


def _lines(text: str) -> list[str]:
    """A newline at the end does not begin another line."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def reverted(before: Files, after: Files, head: Files) -> Files:
    """``head`` without the change from ``before`` to ``after``; later changes stay."""
    made = _made_and_changed_later(before, after, head)
    result = merge_files(after, before | dict.fromkeys(made, b""), head)
    for path in made:
        if not result.get(path, b"").strip():
            result.pop(path, None)  # no later change added to it
    for path in sorted({*before, *after, *head}):
        if is_editable(path):
            continue
        data = before.get(path) if head.get(path) == after.get(path) else head.get(path)
        if data is not None:
            result[path] = data
    return dict(sorted(result.items()))


def _made_and_changed_later(before: Files, after: Files, head: Files) -> list[str]:
    """Text files that the change created and later changes modified. A three-way merge would see
    "deleted" against "modified" and keep the whole file. An empty text instead of no file makes
    it delete line by line.
    """
    made = [path for path in after if path not in before and path in head]
    changed = [path for path in made if is_editable(path) and head[path] != after[path]]
    return [path for path in changed if _is_text(after[path]) and _is_text(head[path])]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
