"""What ``doctor`` says about the streams: are they there, as this release needs them, and how are
they kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sandstream_bus.counts import numbered
from sandstream_bus.errors import SandstreamError
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import bytes_text, days_text, retention_of, retention_text
from sandstream_bus.nats.topology import Topology
from sandstream_bus.setup.installation import Found, check_format, differences, look
from sandstream_bus.setup.upgrade_state import Upgrade, mark_of, needed

from sandstream._surface.connection import ignored_variables
from sandstream.cli.commands.doctor.checks import Check, ok, problem, warning
from sandstream.settings import Settings

_NEARLY_FULL = 0.8
_PATIENCE_S = 5.0
_NOT_ENABLED = (10039, 10076)
"""JetStream: not enabled for the account; not enabled."""
_DAY_NS = 86_400 * 1_000_000_000


async def check_streams(
    connection: Connection, topology: Topology, settings: Settings
) -> tuple[list[Check], bool]:
    """The findings, and whether the streams are good enough to look into them."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await _check(connection, topology, settings)
    except (SandstreamError, TimeoutError) as error:
        why = str(error) or f"no answer within {_PATIENCE_S:g} s"
        return [
            problem(
                "streams",
                f"JetStream does not list its streams: {why}",
                "check the servers: a cluster without a majority does not answer",
            )
        ], False


async def _check(
    connection: Connection, topology: Topology, settings: Settings
) -> tuple[list[Check], bool]:
    found = await look(connection, topology)
    missing = [name for name, config in found.items() if config is None]
    log = found[topology.log]
    if log is not None:
        try:
            check_format(topology, log)
        except SandstreamError as error:
            return [problem("streams", str(error), "see docs/operations.md, Upgrades")], False
    elif (half_done := await needed(connection, topology, log)) is not None:
        return [_half_done(topology, half_done)], False
    if log is None or missing:
        return [_missing(missing, settings)], False
    checks = [
        problem("streams", str(it), "sandstream setup") for it in differences(found, topology)
    ] or [ok("streams", ", ".join(found))]
    if mark_of(log):
        unneeded = f"{topology.log_copy} is left of an upgrade"
        checks.append(warning("upgrade", unneeded, "sandstream setup deletes it"))
    checks.append(_retention(log, settings))
    checks.append(await _replicas(connection, topology))
    checks += [it for it in (_ages(found, topology),) if it]
    checks += [check async for check in _sizes(connection, topology, found)]
    return checks, True


def _half_done(topology: Topology, upgrade: Upgrade) -> Check:
    return problem(
        "streams",
        f"an upgrade of {topology.log} was interrupted; its "
        f"{numbered(upgrade.messages, 'message is', 'messages are')} in "
        f"{topology.log_copy}",
        "continue it: sandstream setup",
    )


def no_jetstream(answer: dict[str, Any] | None) -> Check:
    """Why there is no account information: not enabled, not allowed, or no responder."""
    error = (answer or {}).get("error") or {}
    if error.get("err_code") in _NOT_ENABLED:
        return problem("jetstream", "not enabled", "enable it: `jetstream {}` in nats.conf, or -js")
    return problem(
        "jetstream",
        str(error.get("description") or "it does not answer"),
        "enable it (`jetstream {}` in nats.conf, or -js), and let this user use $JS.API.>; a "
        "cluster answers only while a majority of its servers is up",
    )


def _missing(missing: list[str], settings: Settings) -> Check:
    found = f"not there yet: {', '.join(missing)}"
    if settings.nats is None:
        return warning("streams", found, "they are created on first use: sandstream up")
    return problem("streams", found, "create them: sandstream setup")


def _retention(log: dict[str, Any], settings: Settings) -> Check:
    has = retention_of(log)
    ignored = ignored_variables(settings.retention, has)
    if ignored:
        return warning(
            "retention",
            f"{retention_text(has)}; {', '.join(ignored)} differ and are ignored",
            "unset them, or change the installation: sandstream setup",
        )
    return ok("retention", retention_text(has))


async def _replicas(connection: Connection, topology: Topology) -> Check:
    """How many copies of the log there are, and whether all of them follow."""
    info = await topology.ask(connection, f"STREAM.INFO.{topology.log}", {})
    assert info is not None
    count = int(info["config"].get("num_replicas", 1))
    cluster = info.get("cluster") or {}
    behind = [
        f"{it.get('name', '?')} is {'offline' if it.get('offline') else 'not current'}"
        for it in cluster.get("replicas") or []
        if it.get("offline") or not it.get("current")
    ]
    if behind:
        return warning(
            "replicas",
            f"{count}, but {', '.join(behind)}",
            "check those servers: without a majority, nothing is stored",
        )
    if count == 1 and cluster.get("name"):
        return warning(
            "replicas",
            f"1, on the cluster {cluster['name']}: losing one server's disk loses the log",
            "sandstream setup --replicas 3",
        )
    return ok("replicas", "1, on one server" if count == 1 else f"{count}, all current")


def _ages(found: Found, topology: Topology) -> Check | None:
    """Events refer to objects, which must live as long."""
    log, objects = found[topology.log], found[f"OBJ_{topology.bucket}"]
    assert log is not None and objects is not None
    ages = [int(it.get("max_age", 0)) for it in (log, objects)]
    if ages[1] and (not ages[0] or ages[1] < ages[0]):
        days = ages[0] / _DAY_NS
        return warning(
            "objects",
            f"big payloads go after {days_text(ages[1] / _DAY_NS)}, their events after "
            f"{days_text(days)}",
            f"sandstream setup --max-age-days {days:g}",
        )
    return None


async def _sizes(connection: Connection, topology: Topology, found: Found) -> AsyncIterator[Check]:
    for name, config in found.items():
        limit = int((config or {}).get("max_bytes", -1))
        if limit <= 0:
            continue
        used = int((await topology.stream_state(connection, name))["bytes"])
        if used < limit * _NEARLY_FULL:
            continue
        drops = (config or {}).get("discard") == "old"
        then = (
            "then the oldest events are deleted before their age"
            if drops
            else "then it refuses more"
        )
        yield warning(
            "space",
            f"{name} has {bytes_text(used)} of {bytes_text(limit)}; {then}",
            "sandstream setup --max-bytes SIZE, or --max-age-days DAYS",
        )
