"""What ``doctor`` asks the bus: reachable, JetStream, streams, harnesses, agents, parked."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.embedded.lease import server_status
from sandstream_bus.embedded.statedir import StateDir
from sandstream_bus.errors import PermissionDenied, SandstreamError
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.objects import Objects
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.subjects import Subjects

from sandstream.cli.commands.doctor.actors import Look, check_actors
from sandstream.cli.commands.doctor.checks import Check, ok, problem, warning
from sandstream.cli.commands.doctor.outside import check_outside
from sandstream.cli.commands.doctor.store import (
    check_gone,
    check_limits,
    check_same_log,
    check_writable,
    seen_by,
)
from sandstream.cli.commands.doctor.streams import check_streams, no_jetstream
from sandstream.cli.commands.doctor.sync import check_sync
from sandstream.cli.terminal.render import size
from sandstream.settings import Settings

_NEEDED = (2, 12)


async def check_bus(settings: Settings) -> list[Check]:
    """Everything that needs a server. None is started."""
    return [check async for check in _checks(settings)]


async def _checks(settings: Settings) -> AsyncIterator[Check]:
    options = settings.nats
    if options is None:
        check, options = await _private_server(settings)
        yield check
        if options is None:
            return
    try:
        connection = await Connection.open(options)
    except (SandstreamError, OSError, ValueError) as error:
        yield problem(
            "nats", f"{error}", "start the server, or correct NATS_URL and the credentials"
        )
        return
    try:
        yield ok("nats", f"connected to {connection.url.rpartition('@')[2]}")
        yield _version(connection.server_version)
        if settings.user is None or settings.monitor_urls:
            for check in await check_sync(settings):
                yield check
        if settings.user is not None:
            bus = _bus(connection, Topology(Subjects(settings.prefix)))
            async for check in check_outside(bus, settings.user):
                yield check
            return
        async for check in _jetstream(connection, settings):
            yield check
    finally:
        await connection.close()


async def _private_server(settings: Settings) -> tuple[Check, ConnectOptions | None]:
    status = await server_status(settings.home)
    record = StateDir.at(settings.home).read_record()
    store = f"store {size(status.store_bytes)}"
    if status.answering and record is not None:
        use = "in use" if status.in_use else "idle"
        found = f"private, pid {status.pid}, sync {status.sync}, {use}, {store}"
        options = ConnectOptions(servers=[record.url], user=record.user, password=record.password)
        return ok("server", found), options
    if status.running:
        return (
            problem(
                "server",
                f"locked by pid {status.keeper_pid}, but it does not answer",
                f"see {status.log_path}; if it hangs, end that process",
            ),
            None,
        )
    found = f"private, not running ({store}); it starts on first use"
    return ok("server", found), None


def _version(version: str) -> Check:
    found = re.search(r"(\d+)\.(\d+)\.[^\s>]+", version)
    if found is None:
        return warning("version", f"unknown from {version!r}", "2.12 or later is needed")
    version = found.group()
    if (int(found.group(1)), int(found.group(2))) < _NEEDED:
        return problem(
            "version",
            f"nats-server {version}",
            "2.12 or later is needed: waits and retries are scheduled messages, new in 2.12",
        )
    return ok("version", f"nats-server {version} (2.12 or later is needed)")


async def _jetstream(connection: Connection, settings: Settings) -> AsyncIterator[Check]:
    try:
        account = await _api(connection, "INFO")
    except PermissionDenied as error:
        yield problem(
            "jetstream",
            str(error),
            "run doctor as a user with the role admin; outside users set SANDSTREAM_USER",
        )
        return
    if account is None or "error" in account:
        yield no_jetstream(account)
        return
    used = f"{size(account.get('storage', 0))} stored"
    yield ok("jetstream", f"{used}, {numbered(account.get('streams', 0), 'stream')}")
    async for check in check_limits(account):
        yield check
    topology = Topology(Subjects(settings.prefix))
    bus = _bus(connection, topology)
    found, is_usable = await check_streams(connection, topology, settings)
    for check in found:
        yield check
    if not is_usable:
        if (gone := await check_gone(bus)) is not None:
            yield gone
        return
    consumers = await topology.consumers(connection)
    yield await check_writable(bus)
    seen = await seen_by(bus, [str(it.get("name", "")) for it in consumers])
    async for check in check_same_log(bus, seen):
        yield check
    async for check in check_actors(Look(bus, settings, consumers, set(seen))):
        yield check
    async for check in _contents(bus):
        yield check


def _streams(topology: Topology) -> list[str]:
    return [str(it["name"]) for it in topology.streams()]


def _bus(connection: Connection, topology: Topology) -> Bus:
    """On the one connection that is there."""

    async def connect() -> Connection:
        return connection

    return Bus(
        connection,
        topology,
        Objects(topology.bucket, connect),
        Objects(topology.memory_bucket, connect),
    )


async def _contents(bus: Bus) -> AsyncIterator[Check]:
    names = await bus.agents.names()
    if names:
        yield ok("agents", ", ".join(names))
    else:
        yield warning("agents", "none is registered", "sandstream worker app.py")
    parked = await bus.parking.count()
    if parked:
        yield warning(
            "parked", numbered(parked, "message"), "look at them: sandstream parked; then redrive"
        )
    else:
        yield ok("parked", "nothing")


async def _api(connection: Connection, call: str) -> dict[str, Any] | None:
    """One JetStream call, once; None without an answer. Raises :class:`PermissionDenied`."""
    try:
        reply = await connection.request(f"$JS.API.{call}", b"", timeout_s=3)
    except PermissionDenied:
        raise
    except (SandstreamError, TimeoutError):
        return None
    answer: dict[str, Any] = msgspec.json.decode(reply.data)
    return answer
