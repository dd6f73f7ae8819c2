"""Paths of skills: relative, and inside their directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandstream.sandbox.errors import SkillsConfigError
from sandstream.sandbox.workspace_paths import (
    coerce_posix_path,
    posix_path_as_path,
    windows_absolute_path,
)


def checked_relative_path(
    value: str | Path, *, field: str, context: Mapping[str, object] | None = None
) -> Path:
    """The checked path, POSIX.

    Raises:
        SkillsConfigError: if it is absolute, empty, or leaves the skills root.
    """
    windows = windows_absolute_path(value)
    path = coerce_posix_path(value)
    text = path.as_posix() if windows is None else windows.as_posix()
    if windows is not None or path.is_absolute():
        problem, reason = f"{field} must be a relative path", "absolute"
    elif ".." in path.parts:
        problem, reason = f"{field} must not escape the skills root", "escape_root"
    elif not path.parts:
        problem, reason = f"{field} must be non-empty", "empty"
    else:
        return posix_path_as_path(path)
    raise SkillsConfigError(
        message=problem,
        context={"field": field, "path": text, "reason": reason, **(context or {})},
    )
