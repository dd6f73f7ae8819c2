"""Verifies the streams of an installation, and creates missing ones. Never changes a stream.

A release requires the *shape* of a stream (subjects, direct reads, republishing, …). The operator
chooses its replicas, its limits of age and size, its placement and its compression; processes read
these from the streams.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

import msgspec

from sandstream_bus.errors import (
    NotSetUp,
    PermissionDenied,
    StoreFull,
    StreamsDiffer,
    TopologyError,
)
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import Retention, bytes_text, replicas_text, retention_of
from sandstream_bus.nats.topology import FORMAT, FORMAT_KEY, Topology
from sandstream_bus.setup.upgrade_state import format_of, is_fenced, is_interrupted, mark_of

Create = Literal["never", "if_empty", "missing"]
"""When streams may be created: never; on a server that has none of ours; whenever missing."""

_PATIENCE_S = 2.0
"""A running set-up creates the log first; the other streams follow within this time."""

_NAME_IN_USE = 10058
_NO_CLUSTER = (10074, 10005)
"""JetStream error codes: replicas without a cluster; no suitable servers."""

_NEVER = ("sealed", "deny_purge", "no_ack")
_SAME = (
    *("storage", "retention", "max_msgs_per_subject", "republish", "allow_direct", "deny_delete"),
    *("allow_msg_ttl", "allow_msg_schedules", "allow_rollup_hdrs"),
)
_USUAL: dict[str, Any] = {"retention": "limits", "max_msgs_per_subject": -1}
"""Required values of fields that the wanted configuration does not name."""

CANNOT_CHANGE = {"storage", "retention", "sealed", "deny_delete", "deny_purge"}
"""Fields that JetStream does not allow to change, or to change back."""

Found = dict[str, dict[str, Any] | None]
"""The configuration of each stream by name; ``None`` if missing, empty if not permitted."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a stream that differs from what this release needs."""

    stream: str
    field: str
    found: Any
    wanted: Any

    def __str__(self) -> str:
        return f"{self.stream}: {self.field} is {_said(self.found)}, must be {_said(self.wanted)}"


async def look(
    connection: Connection,
    topology: Topology,
    *,
    may_be_denied: bool = False,
    only_log: bool = False,
) -> Found:
    """The current streams. ``may_be_denied``: the user need not see all streams; ``only_log``: do
    not ask for the others, because each denied request is logged as an error by the server.
    """

    async def config_of(name: str) -> dict[str, Any] | None:
        if only_log and name != topology.log:
            return {}
        try:
            info = await topology.ask(connection, f"STREAM.INFO.{name}", {}, missing_ok=True)
        except PermissionDenied:
            if may_be_denied:
                return {}
            raise
        return None if info is None else info["config"]

    names = [str(config["name"]) for config in topology.streams()]
    configs = await asyncio.gather(*map(config_of, names))
    return dict(zip(names, configs, strict=True))


async def verify(
    connection: Connection, topology: Topology, found: Found | None = None
) -> Retention:
    """The retention of the installation; ``found`` is the result of a recent :func:`look`.

    Streams that the user may not see are assumed to be correct. Raises :class:`NotSetUp` or
    :class:`StreamsDiffer`.
    """
    found = found or await look(connection, topology, may_be_denied=True)
    if log := found[topology.log]:
        check_format(topology, log)  # before missing streams, which an upgrade creates
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    while found[topology.log] is not None and _missing(found):
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(0.1)
        found = await look(connection, topology, may_be_denied=True)
    log = found[topology.log]
    missing = _missing(found)
    if log is None and len(missing) < len(found):
        await _check_not_interrupted(connection, topology)
    if log is None or missing:
        raise _not_set_up(connection, topology, missing, is_empty=len(missing) == len(found))
    if log:
        check_format(topology, log)
    wrong = differences(found, topology)
    if wrong:
        listed = "; ".join(map(str, wrong))
        raise StreamsDiffer(
            f"the streams of this installation are not as this release needs them: {listed}. "
            "`sandstream setup` shows the changes and makes them"
        )
    # the replicas of a hidden log are unknown: assume several, whose writes may overlap
    return retention_of(log) if log else msgspec.structs.replace(topology.retention, replicas=3)


async def create_missing(
    connection: Connection, topology: Topology, found: Found | None = None
) -> Found:
    """Create each missing stream, with the settings of the log if it exists.

    Several processes may do this at once: the one that creates the log determines the settings.
    """
    found = dict(found or await look(connection, topology))
    if found[topology.log] is None:
        await _check_not_interrupted(connection, topology)
        (wanted,) = (it for it in topology.wanted() if it["name"] == topology.log)
        found[topology.log] = await create_stream(connection, topology, wanted)
    log = found[topology.log]
    assert log is not None
    if log:
        topology.retention = retention_of(log)
    missing = [it for it in topology.wanted() if found[it["name"]] is None]
    made = await asyncio.gather(*(create_stream(connection, topology, it) for it in missing))
    return found | {it["name"]: config for it, config in zip(missing, made, strict=True)}


async def create_stream(
    connection: Connection, topology: Topology, wanted: dict[str, Any]
) -> dict[str, Any]:
    """The configuration of the new stream, or of one that another process just created."""
    name = wanted["name"]
    if name == topology.requests:
        wanted = await _after_lost_requests(connection, topology, wanted)
    try:
        answer = await topology.ask(connection, f"STREAM.CREATE.{name}", wanted)
    except (StoreFull, TopologyError) as error:
        if getattr(error, "err_code", 0) != _NAME_IN_USE:
            raise refused(error, wanted) from error
        answer = await topology.ask(connection, f"STREAM.INFO.{name}", {})
    assert answer is not None
    config: dict[str, Any] = answer["config"]
    return config


async def _after_lost_requests(
    connection: Connection, topology: Topology, wanted: dict[str, Any]
) -> dict[str, Any]:
    """Choose the first sequence of a recreated stream of requests. The run of a task without a key
    is named after the task's sequence. If the log has runs from a lost stream of requests,
    sequences must not repeat: new tasks would be taken for old ones. The number of milliseconds
    since the epoch exceeds any number of stored requests.
    """
    if "first_seq" in wanted or "mirror" in wanted:
        return wanted  # an upgrade sets the first sequence itself
    log = await topology.ask(connection, f"STREAM.INFO.{topology.log}", {}, missing_ok=True)
    if log is None or not log["state"]["last_seq"]:
        return wanted
    return wanted | {"first_seq": int(time.time() * 1000)}


def refused(error: StoreFull | TopologyError, config: dict[str, Any]) -> StoreFull | TopologyError:
    """The server's refusal of a configuration, with advice."""
    if isinstance(error, StoreFull):
        size = bytes_text(int(config["max_bytes"]))
        return StoreFull(
            f"the server cannot reserve {size} for {config['name']}: raise `max_file_store` in its "
            f"configuration, or choose a smaller --max-bytes ({error})"
        )
    if error.err_code in _NO_CLUSTER:
        count = int(config["num_replicas"])
        return TopologyError(
            f"{replicas_text(count)} need a NATS cluster of at least {count} servers: {error}",
            err_code=error.err_code,
        )
    return error


async def _check_not_interrupted(connection: Connection, topology: Topology) -> None:
    """Refuse to create a new log while the old one is being upgraded."""
    if await is_interrupted(connection, topology):
        raise StreamsDiffer(
            f"an upgrade of {topology.log} has not ended. `sandstream setup` continues it"
        )


def check_format(topology: Topology, log: dict[str, Any]) -> None:
    """Refuse streams of another format. Streams without a mark have format 1."""
    said = (log.get("metadata") or {}).get(FORMAT_KEY, "1")
    number = format_of(log)
    if number < FORMAT and (mark_of(log) or is_fenced(topology, log)):
        raise StreamsDiffer(
            f"an upgrade of {topology.log} to format {FORMAT} has not ended. "
            "`sandstream setup` continues it"
        )
    if number > FORMAT:
        raise StreamsDiffer(
            f"{topology.log} was set up by a newer release (format {said}; this one knows "
            f"{FORMAT}). Install that release here"
        )
    if number < FORMAT:
        raise StreamsDiffer(
            f"{topology.log} has format {said}; this release needs {FORMAT}. "
            "`sandstream setup` upgrades it"
        )


def differences(found: Found, topology: Topology) -> list[Difference]:
    """The differences between the shape of existing streams and what this release needs."""
    wrong: list[Difference] = []
    for wanted in topology.streams():
        config = found[wanted["name"]]
        if config:
            wrong += _differences(config, wanted)
    return wrong


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[Difference]:
    checks: list[tuple[str, Any, Any, bool]] = []
    missing = [it for it in wanted["subjects"] if not _is_covered(it, found.get("subjects") or [])]
    checks.append(("subjects", found.get("subjects"), missing, not missing))
    for field in _SAME:
        want = wanted.get(field, _USUAL.get(field))
        if want is not None:
            have = found.get(field, False if isinstance(want, bool) else None)
            checks.append((field, have, want, have == want))
    window = wanted.get("duplicate_window")
    if window is not None:
        have = int(found.get("duplicate_window", 0))
        window = min(window, found.get("max_age") or window)  # the maximum that JetStream allows
        checks.append(("duplicate_window", have, window, have >= window))
    for field in _NEVER:
        checks.append((field, found.get(field, False), False, not found.get(field)))
    return [
        Difference(stream=wanted["name"], field=field, found=have, wanted=want)
        for field, have, want, fits in checks
        if not fits
    ]


def _is_covered(subject: str, patterns: list[str]) -> bool:
    return any(_covers(pattern.split("."), subject.split(".")) for pattern in patterns)


def _covers(pattern: list[str], subject: list[str]) -> bool:
    """Does the pattern match everything that the subject, itself a pattern, matches?"""
    for index, token in enumerate(pattern):
        if token == ">":
            return len(subject) > index
        if index >= len(subject) or subject[index] == ">":
            return False
        if token not in ("*", subject[index]):
            return False
    return len(pattern) == len(subject)


def _missing(found: Found) -> list[str]:
    return [name for name, config in found.items() if config is None]


def _not_set_up(
    connection: Connection, topology: Topology, missing: list[str], *, is_empty: bool
) -> NotSetUp:
    where = connection.url.rpartition("@")[2].removeprefix("nats://")
    prefix = topology.subjects.prefix
    if is_empty:
        text = (
            f"the NATS server {where} has no Sandstream streams for the prefix {prefix!r}. "
            "Run `sandstream setup` once to create them"
        )
    else:
        verb = "is" if len(missing) == 1 else "are"
        text = (
            f"{', '.join(missing)} {verb} missing on the NATS server {where}. "
            "Run `sandstream setup`: it creates what is missing and leaves the rest as it is"
        )
    return NotSetUp(text, missing)


def _said(value: Any) -> str:
    return msgspec.json.encode(value).decode()
