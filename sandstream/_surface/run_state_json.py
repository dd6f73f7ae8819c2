"""Writes, checks and reads the JSON form of a saved run. It contains everything that is needed to
continue the run on another server. Each error says what to do about it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from sandstream_bus.errors import InvalidSubject
from sandstream_bus.wire.messages import PastEvent
from sandstream_bus.wire.subjects import RunId, check_token

from sandstream._surface.approval_records import Decision
from sandstream._surface.run_record import RunRecord
from sandstream.exceptions import UserError

VERSION = "sandstream-1"
_NEEDED = ("run_id", "last_sequence", "events", "digest")
"""Required fields; all others have defaults, and later versions may add more."""
_NEWER = re.compile(r"sandstream-(\d+)")
_sorted = msgspec.json.Encoder(order="sorted").encode


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a state, besides its version and its digest."""

    run_id: str
    last_sequence: int
    events: list[PastEvent]
    decisions: list[Decision] = []
    pending_input: list[dict[str, Any]] = []
    context: dict[str, Any] | None = None
    context_meta: dict[str, Any] = {}
    traceparent: str | None = None
    """The caller's span above the run."""
    trace: dict[str, Any] | None = None

    def record(self) -> RunRecord:
        return RunRecord.of_past(RunId(self.run_id), self.events)


def to_data(saved: SavedState) -> dict[str, Any]:
    """As plain JSON values."""
    fields = msgspec.json.decode(msgspec.json.encode(saved))
    data = {"$schemaVersion": VERSION, **fields}
    return data | {"digest": _digest(data)}


def from_data(data: Any) -> SavedState:
    """Check and read."""
    if not isinstance(data, Mapping):
        raise UserError(
            f"this is not a run state: a JSON object is needed, not {type(data).__name__}. Pass "
            "the result of RunState.to_json() or to_string()"
        )
    _check_version(data.get("$schemaVersion"))
    missing = [name for name in _NEEDED if name not in data]
    if missing:
        raise UserError(
            f"the run state is incomplete: {', '.join(missing)} is missing. Store the whole text "
            "that RunState.to_string() returned"
        )
    plain = {name: value for name, value in data.items() if name != "digest"}
    try:
        digest = _digest(plain)
        saved = msgspec.json.decode(msgspec.json.encode(plain), type=SavedState)
        check_token(saved.run_id, "the run id")
        record = saved.record()
        is_whole = bool(record.log_of(record.run_id)) and record.state.started is not None
    except (TypeError, ValueError, LookupError, RecursionError, InvalidSubject) as error:
        raise UserError(f"the run state cannot be read: {error}") from None
    if digest != data["digest"]:
        raise UserError(
            "the run state was edited after it was written: its digest does not fit. Change it "
            "with approve(), reject(), add_input() and context_override, not in its text"
        )
    if not is_whole:
        raise UserError(f"the run state has no beginning of run {saved.run_id}")
    return saved


def from_text(text: str | bytes) -> SavedState:
    try:
        data = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"this is not a run state, or only part of one: it is not JSON ({error}). Give the "
            "whole text that RunState.to_string() returned"
        ) from None
    return from_data(data)


def _check_version(version: Any) -> None:
    if version == VERSION:
        return
    if version is None:
        raise UserError("this is not a run state: it has no $schemaVersion")
    newer = _NEWER.fullmatch(version) if isinstance(version, str) else None
    if newer is not None:
        raise UserError(
            f"the run state was written by a newer version of Sandstream ({version}; this one "
            f"knows {VERSION}): update this installation"
        )
    raise UserError(
        f"the run state has the schema version {version!r}, which is not one of Sandstream's "
        f"({VERSION}): let the SDK that wrote it finish the run"
    )


def _digest(data: Mapping[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(_sorted(data)).hexdigest()
