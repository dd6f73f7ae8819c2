"""What ``up``, ``actor`` and ``worker`` share: start actors, say that they are ready, stop well.

Each actor is imported by those who start it: a process has one kind, as a rule.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import msgspec

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.render import err, pad
from sandstream.cli.session import put_json, say, show_logs
from sandstream.connect import OpenBus, open_bus
from sandstream.settings import Settings

if TYPE_CHECKING:
    from sandstream_actors.harness.actor import Harness
    from sandstream_actors.sandbox.actor import SandboxActor
    from sandstream_actors.tracing.tracing_settings import TracingSettings

    from sandstream.cli.apps import App
    from sandstream.worker import AgentWorker

GRACE_S = 10.0
_ISOLATION = "SANDSTREAM_LOCAL_ISOLATION"


class Ready(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``--json`` prints once the service works."""

    url: str
    home: str | None = None
    prefix: str = "sandstream"
    pool: str | None = None
    replicas: int = 0
    agents: list[str] = []
    node: str | None = None
    """Whose sandboxes are served."""
    sandboxes: dict[str, str] = {}
    """What this machine offers to sandboxes."""
    group: str | None = None
    """Whose traces are made."""
    tracing: dict[str, str] = {}
    """Where traces are kept and exported, and what is in them."""
    memory: dict[str, str] = {}
    """Where what agents remember is worked on."""


@contextlib.asynccontextmanager
async def opened(name: str) -> AsyncIterator[OpenBus]:
    """The bus that the environment names."""
    bus = await open_bus(Settings.from_env(), name=name)
    show_logs()
    try:
        yield bus
    finally:
        await bus.close()


@contextlib.asynccontextmanager
async def harness(bus: OpenBus, pool: str, concurrency: int) -> AsyncIterator[Harness]:
    """A working harness replica; at the end turns under way may finish."""
    from sandstream_actors.harness.actor import Harness
    from sandstream_actors.model import preload

    from sandstream.models.defaults import DefaultModels

    await preload()  # before there is work to beat for
    models = DefaultModels()
    replica = Harness(bus.bus, models, pool=pool, max_in_flight=concurrency)
    await replica.start()
    try:
        yield replica
    finally:
        await replica.stop(GRACE_S)
        await models.aclose()


@contextlib.asynccontextmanager
async def worker(
    bus: OpenBus, app: App, *, pool: str, harness_pool: str, concurrency: int
) -> AsyncIterator[AgentWorker]:
    """A working replica of an app's agents."""
    from sandstream.worker import AgentWorker

    replica = AgentWorker(
        bus.bus,
        app.agents,
        pool=pool,
        config=app.config,
        harness_pool=harness_pool,
        max_in_flight=concurrency,
    )
    await replica.start()
    try:
        yield replica
    finally:
        await replica.stop()


@contextlib.asynccontextmanager
async def sandbox_actor(
    bus: OpenBus, isolation: str, concurrency: int
) -> AsyncIterator[SandboxActor]:
    """A working replica of this machine's sandbox actor. Its sandboxes live on after it."""
    from sandstream.sandbox_host import start_local_actor

    home = Settings.from_env().home
    replica = await start_local_actor(bus.bus, home, isolation, concurrency=concurrency)
    try:
        yield replica
    finally:
        await replica.stop(GRACE_S)


def chosen_isolation(flag: str | None = None) -> str:
    """The flag, else what the environment says, else ``required``."""
    chosen = flag or os.environ.get(_ISOLATION) or "required"
    if chosen not in ("required", "none"):
        raise CliError(Exit.USAGE, f"{_ISOLATION}={chosen!r} must be required or none")
    return chosen


def chosen_tracing(
    *, group: str | None = None, contents: bool | None = None, redact: str | None = None
) -> TracingSettings:
    """What flags and environment ask of tracing; a usage error if that makes no sense."""
    from sandstream_actors.tracing.export.settings import TelemetryError
    from sandstream_actors.tracing.redaction import InvalidRedactor
    from sandstream_actors.tracing.tracing_settings import TracingSettings

    try:
        return TracingSettings.of(group=group, contents=contents, redact=redact)
    except (TelemetryError, InvalidRedactor) as error:
        raise CliError(Exit.USAGE, str(error)) from error


@contextlib.contextmanager
def stopped_with_parent(pipe: int | None, stopped: asyncio.Event) -> Iterator[None]:
    """While this lasts, the end of the parent sets the event, however that went: the parent holds
    the other end of the pipe and never writes.
    """
    if pipe is None:
        yield
        return
    os.set_blocking(pipe, False)
    loop = asyncio.get_running_loop()
    loop.add_reader(pipe, stopped.set)
    try:
        yield
    finally:
        loop.remove_reader(pipe)


def announce(ready: Ready, *, as_json: bool, title: str, hints: list[str]) -> None:
    """Say where it works and what to do next."""
    screen = err()
    if as_json:
        put_json(ready)
    say(screen.paint(title, "bold green"))
    facts = [
        ("bus", ready.url),
        ("home", ready.home or ""),
        ("pool", ready.pool or ""),
        ("agents", ", ".join(ready.agents)),
        ("node", ready.node or ""),
        *ready.sandboxes.items(),
        ("group", ready.group or ""),
        *ready.tracing.items(),
        *ready.memory.items(),
    ]
    facts = [(name, value) for name, value in facts if value]
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        say("  " + screen.paint(pad(name, width), "dim") + value)
    for hint in hints:
        say("  " + screen.paint(hint, "dim"))


def ready_of(bus: OpenBus, **facts: object) -> Ready:
    home = str(bus.server.home) if bus.server is not None else None
    url = bus.server.url if bus.server is not None else bus.bus.connection.url
    made = Ready(url=without_password(url), home=home, prefix=bus.bus.subjects.prefix)
    return msgspec.structs.replace(made, **facts)


def without_password(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]
