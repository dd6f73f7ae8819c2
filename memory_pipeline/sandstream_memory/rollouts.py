"""The transcript file of a rollout: one JSON line for each of its runs.

Files come from workspaces and from earlier versions, so unreadable lines are skipped and not
written again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from sandstream_memory.excerpts import Scrub
from sandstream_memory.segments import (
    TERMINAL_STATES,
    Terminal,
    cleaned_items,
    cleaned_output,
    cleaned_value,
    fitted,
)

MAX_SEGMENT_BYTES = 1024 * 1024
"""The limit for a line; longer ones are cut in the middle."""
_MAX_OMITTED_RUNS = 2000

__all__ = [
    "MAX_SEGMENT_BYTES",
    "TERMINAL_STATES",
    "Terminal",
    "appended",
    "lines_of",
    "runs_in",
    "segment_line",
    "terminals",
    "without_runs",
]


def segment_line(
    *,
    rollout_id: str,
    run: str,
    updated_at: str,
    input: str | Sequence[Any],
    items: Sequence[Any],
    interruptions: Sequence[Any],
    terminal: Terminal,
    final_output: Any,
    scrub: Scrub,
) -> bytes:
    """The line for one run. ``input`` and ``items`` are JSON objects, decoded or not."""
    if isinstance(input, str):
        input = [{"role": "user", "content": input}]
    segment: dict[str, Any] = {
        "updated_at": updated_at,
        "rollout_id": rollout_id,
        "run": run,
        "input": cleaned_items(input, scrub),
        "generated_items": cleaned_items(items, scrub),
    }
    if interruptions:
        segment["interruptions"] = [cleaned_value(each, scrub) for each in interruptions]
    segment["terminal_metadata"] = cleaned_value(terminal.as_metadata(), scrub)
    if final_output is not None:
        segment["final_output"] = cleaned_output(final_output, scrub)
    return fitted(segment, MAX_SEGMENT_BYTES)


def appended(existing: bytes, line: bytes, *, max_bytes: int) -> bytes:
    """The file with the line appended, unless it already contains the line's run.

    A file of more than ``max_bytes`` keeps its first segment, which says what it is about, and as
    many of the last ones as fit; a line in between names the omitted runs.
    """
    new = msgspec.json.decode(line)
    segments = _segments(existing)
    if new.get("run") in _runs(segments):
        return existing
    return _bounded([*segments, new], max_bytes)


def _bounded(segments: list[dict[str, Any]], max_bytes: int) -> bytes:
    lines = [_encoded(each) for each in segments]
    if sum(map(len, lines)) <= max_bytes:
        return b"".join(lines)
    last = fitted(segments[-1], max(max_bytes // 2, 1))
    first = fitted(segments[0], max_bytes // 4) if len(segments) > 1 else b""
    room = max_bytes - len(first) - len(last)
    room -= len(_notice(segments[1:-1]))
    kept: list[bytes] = []
    for line in reversed(lines[1:-1]):
        room -= len(line)
        if room < 0:
            kept.append(_notice(segments[1 : len(segments) - 1 - len(kept)]))
            break
        kept.append(line)
    whole = first + b"".join(reversed(kept)) + last
    return whole if len(whole) <= max_bytes else last if len(last) <= max_bytes else b""


def _notice(omitted: Iterable[dict[str, Any]]) -> bytes:
    runs: list[str] = []
    count = 0
    for each in omitted:
        runs += _runs([each])
        count += each["omitted_segments"] if _is_notice(each) else 1
    return _encoded({"omitted_segments": count, "omitted_runs": runs[-_MAX_OMITTED_RUNS:]})


def without_runs(existing: bytes, runs: Collection[str]) -> bytes:
    """The file without the segments of these runs."""
    gone = set(runs)
    kept: list[bytes] = []
    for segment in _segments(existing):
        if _is_notice(segment):
            left = [run for run in segment["omitted_runs"] if run not in gone]
            segment = segment | {"omitted_runs": left}
        elif segment.get("run") in gone:
            continue
        kept.append(_encoded(segment))
    if all(_is_notice(msgspec.json.decode(line)) for line in kept):
        return b""
    return b"".join(kept)


def runs_in(existing: bytes) -> list[str]:
    """The runs of the file, oldest first, including those whose segments were omitted."""
    return _runs(_segments(existing))


def terminals(existing: bytes) -> list[Terminal]:
    """How the runs of the file ended, oldest first."""
    return [
        Terminal.from_metadata(segment.get("terminal_metadata"))
        for segment in _segments(existing)
        if not _is_notice(segment)
    ]


def lines_of(existing: bytes) -> list[bytes]:
    """The readable lines, without newlines."""
    return [_encoded(segment).rstrip(b"\n") for segment in _segments(existing)]


def _segments(existing: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in existing.split(b"\n"):
        try:
            segment = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(segment, dict):
            found.append(segment)
    return found


def _runs(segments: Iterable[dict[str, Any]]) -> list[str]:
    runs: list[str] = []
    for segment in segments:
        if _is_notice(segment):
            runs += [run for run in segment["omitted_runs"] if isinstance(run, str)]
        elif isinstance(segment.get("run"), str):
            runs.append(segment["run"])
    return runs


def _is_notice(segment: dict[str, Any]) -> bool:
    return isinstance(segment.get("omitted_runs"), list) and isinstance(
        segment.get("omitted_segments"), int
    )


def _encoded(segment: dict[str, Any]) -> bytes:
    return msgspec.json.encode(segment) + b"\n"
