"""What ``doctor`` asks the bus: reachable, JetStream, streams, harnesses, agents, parked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Set
from typing import Any

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.connect_options import ConnectOptions
from sandstream_bus.connection import Connection
from sandstream_bus.embedded import server_status
from sandstream_bus.errors import SandstreamError
from sandstream_bus.objects import Objects
from sandstream_bus.statedir import StateDir
from sandstream_bus.subjects import Subjects
from sandstream_bus.topology import Topology

from sandstream.cli.checks import Check, ok, problem, warning
from sandstream.cli.checks_memory import check_memory
from sandstream.cli.checks_tracing import check_tracing
from sandstream.cli.render import size
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
        yield problem("nats", f"{error}", "start the server, or mend NATS_URL and the credentials")
        return
    try:
        yield ok("nats", f"connected to {connection.url.rpartition('@')[2]}")
        yield _version(connection.server_version)
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
        return warning("version", f"cannot be told from {version!r}", "2.12 or later is needed")
    version = found.group()
    if (int(found.group(1)), int(found.group(2))) < _NEEDED:
        return problem(
            "version",
            f"nats-server {version}",
            "2.12 or later is needed: waits and retries are scheduled messages, new in 2.12",
        )
    return ok("version", f"nats-server {version} (2.12 or later is needed)")


async def _jetstream(connection: Connection, settings: Settings) -> AsyncIterator[Check]:
    account = await _api(connection, "INFO")
    if account is None or "error" in account:
        yield problem("jetstream", "not enabled", "enable it: `jetstream {}` in nats.conf, or -js")
        return
    used = f"{size(account.get('storage', 0))} stored"
    yield ok("jetstream", f"{used}, {account.get('streams', 0)} streams")
    topology = Topology(Subjects(settings.prefix), settings.retention)
    missing = [
        name
        for name in (topology.log, topology.agents, topology.parked, topology.memory)
        if "error" in (await _api(connection, f"STREAM.INFO.{name}") or {"error": ""})
    ]
    if missing:
        yield warning(
            "streams",
            f"not there yet: {', '.join(missing)}",
            "they are made on first use: sandstream up",
        )
        return
    named = f"{topology.log}, {topology.agents}, {topology.parked}, {topology.memory}"
    yield ok("streams", named)
    answer = await _api(connection, f"CONSUMER.LIST.{topology.log}") or {}
    consumers: list[dict[str, Any]] = answer.get("consumers") or []
    bus = _bus(connection, topology)
    names = [str(it.get("name", "")) for it in consumers]
    answers = await asyncio.gather(*map(bus.presence.is_served, names))
    served = {name for name, answered in zip(names, answers, strict=True) if answered}
    yield _harnesses(consumers, served)
    yield _sandbox_actors(consumers, served)
    async for check in check_tracing(bus, settings, consumers, served):
        yield check
    yield await check_memory(bus, consumers, served)
    async for check in _contents(bus):
        yield check


def _harnesses(consumers: list[dict[str, Any]], served: Set[str]) -> Check:
    found: list[str] = []
    behind = 0
    for consumer in consumers:
        name = str(consumer.get("name", ""))
        if not name.startswith("harness-") or name.startswith("harness-p-"):
            continue  # p-…: the own pool of a Runner.run
        behind += consumer.get("num_pending", 0)
        if name in served:
            found.append(name.removeprefix("harness-"))
    if found:
        return ok("harness", f"live in pool {', '.join(sorted(found))}")
    waiting = f", {behind} messages wait" if behind else ""
    return warning(
        "harness",
        f"none is live{waiting}",
        "tasks wait for one: `sandstream up` or `actor harness`",
    )


def _sandbox_actors(consumers: list[dict[str, Any]], served: Set[str]) -> Check:
    """Live ones, and work that waits for one; a caller's own are not for others."""
    shared = re.compile(r"sandbox-[^-]+(-(?!own-).+)?")
    found: list[str] = []
    behind = 0
    for consumer in consumers:
        name = str(consumer.get("name", ""))
        if shared.fullmatch(name) is None:
            continue
        if name not in served:
            behind += consumer.get("num_pending", 0)
        elif name.count("-") > 1:
            found.append(name.partition("-")[2])
    if behind:
        return warning(
            "sandbox",
            f"{behind} messages wait for an actor",
            "start one where the sandboxes are: `sandstream actor sandbox`",
        )
    text = f"live: {', '.join(sorted(found))}" if found else "no actor is live; nothing waits"
    return ok("sandbox", text)


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
    parked = await bus.parking.list()
    if parked:
        yield warning(
            "parked", f"{len(parked)} messages", "look at them: sandstream parked; then redrive"
        )
    else:
        yield ok("parked", "nothing")


async def _api(connection: Connection, call: str) -> dict[str, Any] | None:
    """One JetStream call, once; None without an answer."""
    try:
        reply = await connection.request(f"$JS.API.{call}", b"", timeout_s=3)
    except (SandstreamError, TimeoutError):
        return None
    answer: dict[str, Any] = msgspec.json.decode(reply.data)
    return answer
