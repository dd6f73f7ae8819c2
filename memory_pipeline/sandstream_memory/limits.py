"""Size limits of the memory files that agents and people write.

They apply to every change: a consolidation, an edit, an undo, and a merge of two changes. A file
over the limit would make every later consolidation unacceptable.
"""

from __future__ import annotations

from sandstream_memory.layout import MEMORY_FILE, SUMMARY_FILE, Files, is_editable

MAX_HANDBOOK_BYTES = 512 * 1024
MAX_SUMMARY_BYTES = 60_000
MAX_OTHER_BYTES = 256 * 1024
MAX_OTHER_FILES = 1000


def most_bytes(path: str, max_bytes: int) -> int:
    """The limit for one file, in a memory of at most ``max_bytes``."""
    if path == MEMORY_FILE:
        return min(MAX_HANDBOOK_BYTES, max_bytes // 2)
    return MAX_SUMMARY_BYTES if path == SUMMARY_FILE else MAX_OTHER_BYTES


def too_big(files: Files, max_bytes: int) -> list[str]:
    """Messages about exceeded limits; empty if there are none."""
    written = {path: data for path, data in files.items() if is_editable(path)}
    problems = [
        f"{path} has {len(data)} bytes, more than the {limit} allowed"
        for path, data in sorted(written.items())
        if len(data) > (limit := most_bytes(path, max_bytes))
    ]
    others = len(written.keys() - {MEMORY_FILE, SUMMARY_FILE})
    if others > MAX_OTHER_FILES:
        problems.append(f"there are {others} skills and notes, more than {MAX_OTHER_FILES}")
    total = sum(map(len, written.values()))
    if total > max_bytes:
        problems.append(f"the memory has {total} bytes, more than the {max_bytes} allowed")
    return problems


def within_limits(before: Files, after: Files, max_bytes: int) -> tuple[Files, list[str]]:
    """``after``, with files that grew over the limits reset to ``before``, and notes about them.

    The result never exceeds the limits by more than ``before`` did, so an oversized memory can
    shrink step by step.
    """
    result = dict(after)
    notes: list[str] = []
    for path in sorted(path for path in after if is_editable(path)):
        size, limit = len(after[path]), most_bytes(path, max_bytes)
        if size > max(limit, len(before.get(path, b""))):
            _put_back(result, before, path)
            notes.append(
                f"{path} was not changed: it would have {size} bytes, more than {limit} allowed"
            )
    for path in _too_many(before, result):
        del result[path]
        notes.append(f"{path} was left out: there are more than {MAX_OTHER_FILES} skills and notes")
    if _total(result) > max(max_bytes, _total(before)):
        notes.append(
            f"nothing was changed: the memory would have {_total(result)} bytes, "
            f"more than the {max_bytes} allowed"
        )
        others = {path: data for path, data in after.items() if not is_editable(path)}
        result = others | {path: data for path, data in before.items() if is_editable(path)}
    return dict(sorted(result.items())), notes


def _put_back(files: Files, before: Files, path: str) -> None:
    if path in before:
        files[path] = before[path]
    else:
        del files[path]


def _too_many(before: Files, files: Files) -> list[str]:
    """The last of the new files, as many as exceed the limit."""
    others = [it for it in files if is_editable(it) and it not in (MEMORY_FILE, SUMMARY_FILE)]
    new = sorted(path for path in others if path not in before)
    return new[max(len(new) - max(len(others) - MAX_OTHER_FILES, 0), 0) :]


def _total(files: Files) -> int:
    return sum(len(data) for path, data in files.items() if is_editable(path))
