"""Renders a manifest for a prompt: a tree with the absolute path of each entry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sandstream.sandbox.entries import BaseEntry, Dir, Mount
from sandstream.sandbox.workspace_paths import coerce_posix_path

logger = logging.getLogger(__name__)

MAX_MANIFEST_DESCRIPTION_CHARS = 5000
_CUT = "\n... (truncated {count} chars)\n\nThis listing is cut off: use `ls` to see the rest.\n"


@dataclass
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    description: str | None = None
    is_dir: bool = False
    shown_path: PurePosixPath | None = None


@dataclass(frozen=True)
class _Line:
    tree: str
    path: str
    description: str | None


def render_manifest_description(
    *,
    root: str,
    entries: dict[str | Path, BaseEntry],
    coerce_rel_path: Callable[[str | Path], Path],
    depth: int | None = 1,
    max_chars: int | None = MAX_MANIFEST_DESCRIPTION_CHARS,
) -> str:
    """Show ``depth`` levels (None: all), cut at ``max_chars`` (None: no limit)."""
    if depth is not None and depth <= 0:
        raise ValueError("depth must be at least 1, or None for all levels")
    if max_chars is not None and max_chars <= 0:
        raise ValueError("max_chars must be at least 1, or None for no limit")
    shown_root = root.rstrip("/") or "/"
    root_path = coerce_posix_path(shown_root)
    top = _Node()
    for name, entry in entries.items():
        path = coerce_posix_path(coerce_rel_path(name))
        mounted = isinstance(entry, Mount) and entry.mount_path is not None
        shown = root_path / coerce_posix_path(entry.mount_path) if mounted else None  # type: ignore[attr-defined]
        _insert(top, path, entry, depth, shown)
    lines = list(_lines(top, "", root_path))
    width = max((len(line.tree) for line in lines), default=0)
    text = shown_root + "\n"
    for line in lines:
        about = f" — {line.description}" if line.description else ""
        text += f"{line.tree.ljust(width)}  # {line.path}{about}\n"
    return _cut(text, max_chars)


def _insert(
    top: _Node,
    path: PurePosixPath,
    entry: BaseEntry,
    depth: int | None,
    shown: PurePosixPath | None,
) -> None:
    """Insert an entry and its children into the tree, down to ``depth``."""
    parts = path.parts[:depth]
    whole = len(parts) == len(path.parts)
    node = top
    for index, part in enumerate(parts, start=1):
        node = node.children.setdefault(part, _Node())
        node.is_dir = node.is_dir or index < len(path.parts)
    if node is top:
        return
    if whole:
        node.description = node.description if node.description is not None else entry.description
        node.shown_path = shown or node.shown_path
        node.is_dir = node.is_dir or entry.permissions.directory
    if isinstance(entry, Dir):
        for name, child in entry.children.items():
            _insert(top, path / coerce_posix_path(name), child, depth, None)


def _lines(node: _Node, indent: str, path: PurePosixPath) -> Iterator[_Line]:
    names = sorted(node.children)
    for name in names:
        child = node.children[name]
        last = name == names[-1]
        here = path / name
        shown = f"{name}/" if child.is_dir or child.children else name
        branch = "└── " if last else "├── "
        yield _Line(
            tree=indent + branch + shown,
            path=(child.shown_path or here).as_posix(),
            description=child.description,
        )
        yield from _lines(child, indent + ("    " if last else "│   "), here)


def _cut(text: str, max_chars: int | None) -> str:
    if max_chars is None or len(text) <= max_chars:
        return text
    kept = max_chars
    # The notice counts toward the limit: repeat until its length is stable.
    while True:
        notice = _CUT.format(count=len(text) - kept)
        fitting = max(0, max_chars - len(notice))
        if fitting == kept:
            break
        kept = fitting
    logger.warning("the description of the manifest was cut to %s characters", max_chars)
    return (text[:kept].rstrip() + notice)[:max_chars]
