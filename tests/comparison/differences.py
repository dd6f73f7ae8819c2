"""Compares two reports, and lists the differences that we keep on purpose."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

_ID = re.compile(r"\b(resp|msg|fc|rs|req|chatcmpl)[_-][A-Za-z0-9-]{6,}\b")
_CACHE_KEY = re.compile(r"\b(?:agents-sdk|sandstream):(run|group|conversation):\w+")
_TIMES = {"created_at", "completed_at"}


def normalised(report: Any) -> Any:
    """Ids are numbered in the order in which they are seen; times are left out."""
    seen: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        kind = match[1]
        return seen.setdefault(match[0], f"{kind}#{sum(v.startswith(kind) for v in seen.values())}")

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return _ID.sub(rename, _CACHE_KEY.sub(rename, value))
        if isinstance(value, list):
            return [walk(item) for item in value]
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items() if key not in _TIMES}
        return value

    return walk(report)


_ABSENT = object()


def differences(theirs: Any, ours: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Paths where two JSON values differ, with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            found |= differences(
                theirs.get(key, _ABSENT), ours.get(key, _ABSENT), f"{path}.{key}" if path else key
            )
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        found = {}
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            found |= differences(one, other, f"{path}.{index}")
        return found
    if type(theirs) is type(ours) and theirs == ours:
        return {}
    return {path: (theirs, ours)}


def told(found: dict[str, tuple[Any, Any]]) -> str:
    lines = []
    for path, (theirs, ours) in found.items():
        lines += [f"{path}", f"   agents:     {_short(theirs)}", f"   sandstream: {_short(ours)}"]
    return "\n".join(lines)


def _short(value: Any) -> str:
    return "(absent)" if value is _ABSENT else json.dumps(value)[:600]


@dataclass(frozen=True)
class Expected:
    """A difference that stays. Patterns as in file names; `path` is where in the report."""

    program: str
    path: str
    reason: str

    def covers(self, program: str, path: str) -> bool:
        return fnmatchcase(program, self.program) and fnmatchcase(path, self.path)


EXPECTED: tuple[Expected, ...] = ()
