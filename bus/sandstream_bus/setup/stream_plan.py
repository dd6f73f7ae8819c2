"""Plans and makes the changes of ``sandstream setup``. No other code changes a stream.

Existing streams keep their operator's choices: only the shape that this release needs is repaired,
and only requested settings are changed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sandstream_bus.errors import StoreFull, TopologyError
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import (
    Retention,
    RetentionChoice,
    bytes_text,
    days_text,
    retention_of,
    share_bytes,
)
from sandstream_bus.nats.topology import FORMAT, FORMAT_KEY, Topology
from sandstream_bus.setup.installation import (
    CANNOT_CHANGE,
    Difference,
    Found,
    check_format,
    create_stream,
    differences,
    look,
    refused,
)
from sandstream_bus.setup.lock import SetupLock
from sandstream_bus.setup.upgrade_state import Upgrade, is_mirror, needed

_DAY_NS = 86_400 * 1_000_000_000
_ROUNDS = 5


class StreamChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of a plan."""

    stream: str
    action: Literal["create", "change"]
    field: str = ""
    found: Any = None
    wanted: Any = None
    loses: str = ""
    """What the change loses; empty: nothing."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All changes, and the installation's settings afterwards."""

    changes: list[StreamChange]
    retention: Retention
    configs: dict[str, dict[str, Any]]
    """The configurations to send to the server, by stream."""
    upgrade: Upgrade | None = None
    """The upgrade to make before the changes."""

    @property
    def losses(self) -> list[StreamChange]:
        return [it for it in self.changes if it.loses]


async def make_plan(
    connection: Connection,
    topology: Topology,
    choice: RetentionChoice,
    defaults: Retention | None = None,
) -> Plan:
    """Compare the current streams with what this release needs and with the requested settings.

    Args:
        connection: To the server.
        topology: The streams of this release. Its ``retention`` is set to the planned one.
        choice: Settings to change, also on existing streams.
        defaults: Further settings of a new installation.

    Raises:
        TopologyError: A stream cannot be changed as needed.
    """
    found = await look(connection, topology)
    upgrade = await needed(connection, topology, found[topology.log])
    if upgrade is not None:  # plan the changes that remain after it
        found[topology.log] = upgrade.config
        if is_mirror(found[topology.requests] or {}):
            found[topology.requests] = None  # it is being created
    log = found[topology.log]
    if log is not None:
        base = retention_of(log)
        _check_not_newer(topology, log)
    else:
        base = defaults or Retention()
    topology.retention = choice.over(base)
    wrong = differences(found, topology)
    _refuse_impossible(wrong)
    plan = Plan(changes=[], retention=topology.retention, configs={}, upgrade=upgrade)
    for wanted in topology.wanted():
        config = found[wanted["name"]]
        if config is None:
            plan.changes.append(StreamChange(stream=wanted["name"], action="create", wanted=wanted))
            plan.configs[wanted["name"]] = wanted
        else:
            of_stream = [it for it in wrong if it.stream == wanted["name"]]
            _plan_change(plan, config, wanted, of_stream, choice)
    return plan


async def carry_out(
    connection: Connection,
    topology: Topology,
    choice: RetentionChoice,
    plan: Plan,
    defaults: Retention | None = None,
) -> None:
    """Carry out the plan while holding the set-up lock. Any upgrade was made before.

    Raises:
        TopologyError: The server refuses, or another set-up has changed the installation so that
            more would be lost than this plan says.
    """
    async with SetupLock(connection, topology):
        for _ in range(_ROUNDS):
            now = await make_plan(connection, topology, choice, defaults)
            if now.upgrade is not None or any(it not in plan.losses for it in now.losses):
                raise TopologyError(
                    "the installation has changed meanwhile. Run `sandstream setup` again"
                )
            if not now.changes:
                return
            await _carry_out(connection, topology, now)
    raise TopologyError(
        "the streams do not stay as they were set: something else changes them, too"
    )


async def _carry_out(connection: Connection, topology: Topology, plan: Plan) -> None:
    creations = {it.stream for it in plan.changes if it.action == "create"}
    for name, config in plan.configs.items():  # the log first: its settings apply to the others
        if name in creations:
            await create_stream(connection, topology, config)
            continue
        try:
            await topology.ask(connection, f"STREAM.UPDATE.{name}", config)
        except (StoreFull, TopologyError) as error:
            raise refused(error, config) from error


# --- one stream -----------------------------------------------------------------------------------


def _plan_change(
    plan: Plan,
    found: dict[str, Any],
    wanted: dict[str, Any],
    wrong: list[Difference],
    choice: RetentionChoice,
) -> None:
    """Add the changes of one stream to the plan."""
    name = wanted["name"]
    fields: dict[str, Any] = {it.field: wanted.get(it.field, it.wanted) for it in wrong}
    if "subjects" in fields:  # keep the operator's own subjects
        have = list(found.get("subjects") or [])
        fields["subjects"] = have + [it for it in wanted["subjects"] if it not in have]
    fields |= _chosen(wanted, choice)
    marks = found.get("metadata") or {}
    if marks.get(FORMAT_KEY) != str(FORMAT):
        fields["metadata"] = marks | {FORMAT_KEY: str(FORMAT)}
    changed = {key: it for key, it in fields.items() if found.get(key) != it}
    if not changed:
        return
    plan.configs[name] = found | changed
    drops = plan.configs[name].get("discard") == "old"
    plan.changes.extend(
        StreamChange(
            stream=name,
            action="change",
            field=field,
            found=found.get(field),
            wanted=value,
            loses=_loss(field, found.get(field), value, drops=drops),
        )
        for field, value in changed.items()
    )


def _chosen(wanted: dict[str, Any], choice: RetentionChoice) -> dict[str, Any]:
    """The requested fields."""
    fields: dict[str, Any] = {}
    if choice.replicas is not None:
        fields["num_replicas"] = wanted["num_replicas"]
    if choice.max_age_days is not None and "max_age" in wanted:
        fields["max_age"] = wanted["max_age"]
    if choice.max_bytes is not None:
        fields["max_bytes"] = share_bytes(wanted["name"], choice.max_bytes)
        if fields["max_bytes"] > 0:  # it has no meaning without a limit
            fields["discard"] = wanted["discard"]
    return fields


def _loss(field: str, found: Any, wanted: Any, *, drops: bool) -> str:
    """What is lost when a field is reduced; 0 and -1 mean no limit.

    A full stream that refuses new messages (not ``drops``) loses nothing.
    """
    if field == "max_age" and wanted and (not found or wanted < found):
        return "older messages are deleted at once"
    if field == "max_bytes" and drops and wanted > 0 and (int(found or -1) <= 0 or wanted < found):
        return "what does not fit goes, the oldest first"
    if field == "num_replicas" and wanted < found:
        return "fewer copies survive the loss of a disk"
    return ""


def _refuse_impossible(wrong: list[Difference]) -> None:
    fixed = [it for it in wrong if it.field in CANNOT_CHANGE]
    if fixed:
        raise TopologyError(
            f"{'; '.join(map(str, fixed))}. NATS does not let this be changed on a stream that "
            "exists: back it up if you need it (`nats stream backup`), delete it, and run "
            "`sandstream setup` again"
        )


def _check_not_newer(topology: Topology, log: dict[str, Any]) -> None:
    said = (log.get("metadata") or {}).get(FORMAT_KEY, "1")
    if said.isdecimal() and int(said) > FORMAT:
        check_format(topology, log)


# --- text -----------------------------------------------------------------------------------------


def value_text(field: str, value: Any) -> str:
    """A value of a stream's configuration as text for people."""
    if field == "max_age":
        return days_text(int(value or 0) / _DAY_NS)
    if field == "max_bytes":
        return bytes_text(int(value or 0))
    if field == "duplicate_window":
        return f"{int(value or 0) / 1e9:g} s"
    if field == "metadata":
        return f"format {(value or {}).get(FORMAT_KEY, 'not marked')}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "not set" if value is None else str(value).lower()


__all__ = ["Found", "Plan", "StreamChange", "carry_out", "make_plan", "value_text"]
