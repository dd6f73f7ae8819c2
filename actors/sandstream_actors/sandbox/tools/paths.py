"""Converts paths that a model wrote to paths in the box, and back for the model.

These rules concern only spelling. Links are resolved inside the box, by the ``ResolveRule`` of
every access.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import PurePosixPath

from sandstream_providers.interface import ResolveRule

_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:/")


class PathNotAllowed(ValueError):
    """The path is outside of the permitted ones, or is not a path at all."""


def in_workspace(path: str, root: str, cwd: str) -> str:
    """The absolute path, which must be below the root. Relative paths start at ``cwd``."""
    absolute = _absolute(path, root, cwd)
    if not _is_below(absolute, root):
        raise PathNotAllowed(path)
    return absolute


def in_workspace_or_grant(path: str, root: str, cwd: str, rule: ResolveRule) -> str:
    """As :func:`in_workspace`; an absolute path may lie below a grant as well."""
    absolute = _absolute(path, root, cwd)
    grants = [*rule.roots, *rule.read_only_roots] if is_absolute(path) else []
    if not any(_is_below(absolute, allowed) for allowed in [root, *grants]):
        raise PathNotAllowed(path)
    return absolute


def shown(path: str, absolute: str, root: str, cwd: str) -> str:
    """The path as the model sees it: relative to where its own relative paths start."""
    if not _is_below(absolute, root):
        return absolute
    start = root if is_absolute(path) else posixpath.join(root, cwd)
    return posixpath.relpath(absolute, start)


def is_root(cwd: str, root: str) -> bool:
    """Whether relative paths start at the root itself, however that was said."""
    return posixpath.normpath(posixpath.join(root, cwd)) == posixpath.normpath(root)


def is_absolute(path: str) -> bool:
    path = _with_slashes(path)
    return path.startswith("/") or bool(_WINDOWS_DRIVE.match(path))


def tidy(path: str) -> str:
    """Without doubled slashes and single dots, as paths are written in messages."""
    return str(PurePosixPath(path))


def _absolute(path: str, root: str, cwd: str) -> str:
    spelled = _with_slashes(path)
    if "\0" in spelled or _WINDOWS_DRIVE.match(spelled):
        raise PathNotAllowed(path)
    return posixpath.normpath(posixpath.join(root, cwd, spelled))


def _with_slashes(path: str) -> str:
    return path.replace("\\", "/")


def _is_below(path: str, root: str) -> bool:
    root = posixpath.normpath(root)
    return path == root or path.startswith(root.rstrip("/") + "/")
