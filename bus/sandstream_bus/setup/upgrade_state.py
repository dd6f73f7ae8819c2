"""The progress of an upgrade, read from the streams. Changes nothing.

The progress follows from which of the log and its copy exist, which of them mirrors the other, and
a mark in their metadata. There is no other record that could disagree with them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_bus.errors import PermissionDenied, TopologyError
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import retention_of
from sandstream_bus.nats.topology import (
    CREATED_KEY,
    FORMAT,
    FORMAT_KEY,
    UPGRADE_KEY,
    Topology,
)

COPYING = "copying"
"""The mark of a log that is not ready yet."""
COPIED = "copied"
"""The mark of a log that is ready, while the copy still exists."""

_OLD_SUBJECTS = ("task.*", "timer.>")
"""Subjects of the log in format 1 that it no longer has in format 2."""


_OLD_POWERS = ("allow_msg_schedules", "allow_msg_ttl", "allow_rollup_hdrs")
"""Settings of format 1 that JetStream does not allow to switch off."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The copy's metadata about the log from which it was made."""

    created: str
    config: dict[str, Any]


class Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade to make, or to finish."""

    messages: int
    size_bytes: int
    is_begun: bool
    is_copied: bool
    """The log is ready; only the copy remains to be deleted."""
    config: dict[str, Any]
    """The log's configuration after the upgrade."""


def fence_of(topology: Topology) -> str:
    """The only subject of a fenced log; no process publishes to it."""
    [fence] = topology.subjects.matching("upgrade.log")
    return fence


def is_fenced(topology: Topology, config: dict[str, Any]) -> bool:
    return config.get("subjects") == [fence_of(topology)]


def mark_of(config: dict[str, Any]) -> str:
    return str((config.get("metadata") or {}).get(UPGRADE_KEY, ""))


def format_of(config: dict[str, Any]) -> int:
    """The format of a stream: 1 without a mark, 0 for an invalid mark."""
    said = (config.get("metadata") or {}).get(FORMAT_KEY, "1")
    return int(said) if said.isdecimal() else 0


def is_old(config: dict[str, Any]) -> bool:
    """Is it a log of format 1 that was not copied yet? A log without a mark may also be a new one
    that an operator has edited.
    """
    return format_of(config) == 1 and not mark_of(config) and any(map(config.get, _OLD_POWERS))


def is_mirror(config: dict[str, Any]) -> bool:
    return bool(config.get("mirror"))


def note_of(copy: dict[str, Any]) -> Note:
    """The copy's note about the log."""
    try:
        return msgspec.json.decode(mark_of(copy["config"]), type=Note)
    except msgspec.DecodeError as error:
        raise TopologyError(
            f"{copy['config']['name']} exists, and no upgrade has made it: rename or delete it"
        ) from error


async def is_interrupted(connection: Connection, topology: Topology) -> bool:
    """Is the log missing because an upgrade was interrupted?"""
    call = f"STREAM.INFO.{topology.log_copy}"
    try:
        return await topology.ask(connection, call, {}, missing_ok=True) is not None
    except PermissionDenied:  # an outside user only learns that the log is missing
        return False


async def needed(
    connection: Connection, topology: Topology, log: dict[str, Any] | None
) -> Upgrade | None:
    """The needed upgrade, or ``None``. ``log``: the configuration of the log, if it exists.

    Sends no request if the log is up to date.
    """
    if log is not None and not is_old(log) and not mark_of(log):
        return None
    names = (topology.log, topology.log_copy)
    log_info, copy = [
        await topology.ask(connection, f"STREAM.INFO.{it}", {}, missing_ok=True) for it in names
    ]
    whole = copy if log_info is None or mark_of(log_info["config"]) == COPYING else log_info
    if whole is None:
        return None
    is_copied = log is not None and mark_of(log) == COPIED
    if is_copied and log is not None:
        config = log
    elif copy is not None:
        config = final_config(topology, note_of(copy))
    else:
        config = final_config(topology, Note(created=whole["created"], config=whole["config"]))
    return Upgrade(
        messages=int(whole["state"]["messages"]),
        size_bytes=int(whole["state"]["bytes"]),
        is_begun=copy is not None or is_copied or is_fenced(topology, whole["config"]),
        is_copied=is_copied,
        config=config,
    )


def final_config(topology: Topology, note: Note) -> dict[str, Any]:
    """The log's configuration in this format: the operator's choices, with this release's shape."""
    retention, topology.retention = topology.retention, retention_of(note.config)
    try:
        wanted = {it["name"]: it for it in topology.streams()}
    finally:
        topology.retention = retention
    log = wanted[topology.log]
    config = {key: value for key, value in note.config.items() if key not in _NOT_KEPT}
    for field in ("allow_msg_ttl", "allow_msg_schedules", "allow_rollup_hdrs", "deny_delete"):
        config[field] = log[field]
    config |= {it: log[it] for it in ("allow_direct", "discard", "republish")}
    window = int(note.config.get("duplicate_window") or 0)
    config["duplicate_window"] = max(window, log["duplicate_window"])
    config["subjects"] = [*log["subjects"], *_own_subjects(topology, note, log["subjects"])]
    marks = note.config.get("metadata") or {}
    config["metadata"] = {key: it for key, it in marks.items() if not key.startswith("_nats")}
    config["metadata"] |= {
        FORMAT_KEY: str(FORMAT),
        CREATED_KEY: marks.get(CREATED_KEY, note.created),
        UPGRADE_KEY: COPIED,
    }
    return config


_NOT_KEPT = ("first_seq", "mirror", "mirror_direct", "subject_delete_marker_ttl")


def _own_subjects(topology: Topology, note: Note, wanted: list[str]) -> list[str]:
    """What the operator added to the subjects of the log."""
    usual = {*wanted, *topology.subjects.matching(*_OLD_SUBJECTS), fence_of(topology)}
    own = [it for it in note.config.get("subjects") or [] if it not in usual]
    taken = [it for config in topology.streams() for it in config["subjects"]]
    for subject in own:
        if any(_collide(subject.split("."), it.split(".")) for it in taken):
            raise TopologyError(
                f"{topology.log} stores {subject!r}, which overlaps with subjects that this "
                "release needs for itself. Take it off the stream (`nats stream edit`), and run "
                "`sandstream setup` again"
            )
    return own


def _collide(one: list[str], other: list[str]) -> bool:
    """Can both patterns match the same subject?"""
    for left, right in zip(one, other, strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(one) == len(other)
