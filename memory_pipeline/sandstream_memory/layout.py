"""Paths of memory files: canonical ones, and those in the layout of a workspace.

Canonical paths begin with ``memories/`` or ``sessions/``, even if a workspace names these
directories differently, so that workspaces with different layouts can share a memory.
"""

from __future__ import annotations

import hashlib
import posixpath
import re

from sandstream_bus.wire.sandbox_specs import MemoryMount

Files = dict[str, bytes]
"""Files by canonical path."""

MEMORY_FILE = "memories/MEMORY.md"
SUMMARY_FILE = "memories/memory_summary.md"
RAW_FILE = "memories/raw_memories.md"
SELECTION_FILE = "memories/phase_two_selection.json"
MARKER_FILE = "memories/.memory.json"

MEMORIES = "memories/"
SESSIONS = "sessions/"
RAW_MEMORIES = "memories/raw_memories/"
SUMMARIES = "memories/rollout_summaries/"
SKILLS = "memories/skills/"

KNOWN_FILES = frozenset({MEMORY_FILE, SUMMARY_FILE, RAW_FILE, SELECTION_FILE, MARKER_FILE})
KNOWN_FOLDERS = frozenset(it.rstrip("/") for it in (RAW_MEMORIES, SUMMARIES, SKILLS))
"""Folders that exist in every workspace, even if the memory has no files in them."""

_VALID_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ESCAPED_NAME = re.compile(r".*\.id-[0-9a-f]{24}", re.S)
_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_KEPT_OF_ID = 90
_MAX_SEGMENT_BYTES = 255
_MAX_PATH_BYTES = 1024


def rollout_name(rollout_id: str) -> str:
    """The id as a file name: unchanged if possible, otherwise its usable part and a digest.

    An id that looks like an escaped name is escaped too, so that no id can be chosen to collide
    with the name of another.
    """
    if _VALID_NAME.fullmatch(rollout_id) and not _ESCAPED_NAME.fullmatch(rollout_id):
        return rollout_id
    digest = hashlib.sha256(rollout_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    kept = _ODD.sub("-", rollout_id[:_KEPT_OF_ID]).strip("-_")
    return f"{kept or 'rollout'}.id-{digest}"


def raw_path(name: str) -> str:
    return f"{RAW_MEMORIES}{name}.md"


def summary_path(name: str, slug: str) -> str:
    return f"{SUMMARIES}{name}_{slug}.md"


def rollout_path(name: str) -> str:
    return f"{SESSIONS}{name}.jsonl"


def is_valid_path(path: str) -> bool:
    """Whether it is a canonical path that every file system interprets in the same way."""
    if not path.startswith((MEMORIES, SESSIONS)) or len(_encoded(path)) > _MAX_PATH_BYTES:
        return False
    return all(_is_valid_segment(segment) for segment in path.split("/"))


def _is_valid_segment(segment: str) -> bool:
    if segment in ("", ".", "..") or "\\" in segment or not segment.isprintable():
        return False
    return len(_encoded(segment)) <= _MAX_SEGMENT_BYTES


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def is_editable(path: str) -> bool:
    """Whether agents and people may change the file. Generated files are not editable, nor are
    paths that cannot be laid out: in the place of a known folder, or below a known file.
    """
    if not path.startswith(MEMORIES) or not is_valid_path(path):
        return False
    if path in (RAW_FILE, SELECTION_FILE, MARKER_FILE) or path in KNOWN_FOLDERS:
        return False
    if not KNOWN_FILES.isdisjoint(folders_of(path)):
        return False
    return not path.startswith((RAW_MEMORIES, SUMMARIES))


def folders_of(path: str) -> list[str]:
    """All folders above the path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


# --- the layout of a workspace --------------------------------------------------------------------


def check_layout(memories_dir: str, sessions_dir: str) -> None:
    """Raise ``ValueError`` unless these are two different directories inside the workspace."""
    cleaned = []
    for name, value in (("memories_dir", memories_dir), ("sessions_dir", sessions_dir)):
        if not value.strip() or posixpath.normpath(value) == ".":
            raise ValueError(f"layout.{name} is empty: name a directory inside of the workspace")
        if value.startswith("/"):
            raise ValueError(
                f"layout.{name} is {value!r}: it must be relative to the workspace's root"
            )
        if ".." in value.split("/"):
            raise ValueError(
                f"layout.{name} is {value!r}: it must not leave the workspace ('..' in it)"
            )
        if not all(_is_valid_segment(part) for part in posixpath.normpath(value).split("/")):
            raise ValueError(f"layout.{name} is {value!r}: no directory can be called that")
        cleaned.append(posixpath.normpath(value))
    if cleaned[0] == cleaned[1]:
        raise ValueError(
            f"layout.memories_dir and layout.sessions_dir are both {cleaned[0]!r}: "
            "they must be two directories"
        )


def to_workspace(path: str, mount: MemoryMount) -> str:
    """The path of a memory file in the workspace, relative to its root."""
    for prefix, folder in _folders(mount):
        if path.startswith(prefix):
            return f"{folder}/{path[len(prefix) :]}"
    raise ValueError(
        f"{path!r} is not a path of a memory: it must begin with memories/ or sessions/"
    )


def to_canonical(path: str, mount: MemoryMount) -> str | None:
    """The canonical path; ``None`` if the path is outside the memory's directories."""
    path = posixpath.normpath(path)
    nested_first = sorted(_folders(mount), key=lambda each: -len(each[1]))
    for prefix, folder in nested_first:
        if path.startswith(f"{folder}/"):
            return f"{prefix}{path[len(folder) + 1 :]}"
    return None


def _folders(mount: MemoryMount) -> list[tuple[str, str]]:
    return [
        (MEMORIES, posixpath.normpath(mount.memories_dir)),
        (SESSIONS, posixpath.normpath(mount.sessions_dir)),
    ]
