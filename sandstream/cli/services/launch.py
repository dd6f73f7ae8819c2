"""What ``up``, ``actor`` and ``worker`` share: start actors, say that they are ready, stop well.

Each function imports the actor that it starts: most processes have only one kind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec
from sandstream_actors.registry import ActorEntry, load
from sandstream_bus.environment import LOCAL_ISOLATION, local_isolation
from sandstream_bus.nats.collector import tune_collector
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER

from sandstream._surface.connection import OpenBus, open_bus
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import put_json, run_async, say, show_logs, stop_signals
from sandstream.cli.terminal.render import clean, err, pad
from sandstream.settings import Settings

if TYPE_CHECKING:
    from sandstream_actors.base import Actor
    from sandstream_actors.harness.actor import Harness
    from sandstream_actors.sandbox.actor import SandboxActor
    from sandstream_actors.sessions.actor import SessionsActor
    from sandstream_actors.tracing.tracing_settings import TracingSettings

    from sandstream.cli.commands.worker.apps import App
    from sandstream.worker import AgentWorker

GRACE_S = 10.0


class Ready(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``--json`` prints once the service works."""

    url: str
    home: str | None = None
    prefix: str = "sandstream"
    pool: str | None = None
    replicas: int = 0
    agents: list[str] = []
    node: str | None = None
    """The node whose sandboxes are served."""
    sandboxes: dict[str, str] = {}
    """What this machine offers to sandboxes."""
    providers: list[str] = []
    """Whose sandboxes are served."""
    missing: dict[str, str] = {}
    """Providers that do not work on this machine, and why."""
    group: str | None = None
    """The group of the tracing actor."""
    tracing: dict[str, str] = {}
    """Where traces are kept and exported, and what is in them."""
    memory: dict[str, str] = {}
    """Where memories are processed."""


@contextlib.asynccontextmanager
async def opened(
    name: str, *, create: Literal["never", "if_empty"] = "never"
) -> AsyncIterator[OpenBus]:
    """The bus that the environment names."""
    bus = await open_bus(Settings.from_env(), name=name, create=create)
    tune_collector()
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
    bus: OpenBus, isolation: str, concurrency: int, provider: str = DEFAULT_PROVIDER
) -> AsyncIterator[SandboxActor]:
    """A working replica of a provider's sandbox actor. Its sandboxes live on after it."""
    from sandstream._run.sandbox_host import start_sandbox_actor

    home = Settings.from_env().home
    replica = await start_sandbox_actor(
        bus.bus, home, isolation, provider=provider, concurrency=concurrency
    )
    try:
        yield replica
    finally:
        await replica.stop(GRACE_S)


@contextlib.asynccontextmanager
async def sessions_actor(bus: OpenBus, concurrency: int) -> AsyncIterator[SessionsActor]:
    """A working replica of the sessions actor."""
    from sandstream_actors.sessions.actor import SessionsActor

    replica = SessionsActor(bus.bus, max_in_flight=concurrency)
    await replica.start()
    try:
        yield replica
    finally:
        await replica.stop(GRACE_S)


def chosen_provider(flag: str | None) -> str:
    """The flag, else the default; a usage error if no package has that provider."""
    from sandstream_providers import registry

    if flag is not None and flag not in registry.names():
        known = ", ".join(registry.names())
        raise CliError(Exit.USAGE, f"there is no sandbox provider {flag!r}; known: {known}")
    return flag or DEFAULT_PROVIDER


def chosen_isolation(flag: str | None = None) -> str:
    """The flag, else what the environment says, else ``required``."""
    chosen = flag or local_isolation()
    if chosen not in ("required", "none"):
        raise CliError(Exit.USAGE, f"{LOCAL_ISOLATION}={chosen!r} must be required or none")
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


async def until_stopped(
    arguments: argparse.Namespace, ready: Ready, *, title: str, hints: list[str]
) -> int:
    """Announce an actor that works, and wait until this process is to stop. A replica of ``up``
    (``--parent-pipe``) announces nothing, and stops with its parent.
    """
    pipe: int | None = arguments.parent_pipe
    stopped = stop_signals()
    if pipe is None:
        announce(ready, as_json=arguments.json, title=title, hints=hints)
    with stopped_with_parent(pipe, stopped):
        await stopped.wait()
    if pipe is None:
        say("stopping (press Ctrl-C again to stop at once)")
    return Exit.OK


def serve_harness(arguments: argparse.Namespace) -> int:
    async def serve() -> int:
        pool = arguments.pool or "main"
        async with (
            opened("sandstream-harness") as bus,
            harness(bus, pool, arguments.concurrency),
        ):
            return await until_stopped(
                arguments,
                ready_of(bus, pool=pool, replicas=1),
                title="harness is ready",
                hints=["start more of them, on any machine, to increase throughput"],
            )

    return run_async(serve(), debug=arguments.debug)


def serve_sandboxes(arguments: argparse.Namespace) -> int:
    provider = chosen_provider(arguments.provider)
    isolation = chosen_isolation(arguments.isolation)

    async def serve() -> int:
        async with (
            opened("sandstream-sandbox") as bus,
            sandbox_actor(bus, isolation, arguments.concurrency, provider) as replica,
        ):
            return await until_stopped(
                arguments,
                ready_of(bus, node=replica.node, sandboxes=await replica.provider.check()),
                title=f"sandbox actor ({replica.provider.name}) is ready",
                hints=["look: sandstream sandboxes; they remain when this actor stops"],
            )

    return run_async(serve(), debug=arguments.debug)


def serve_actor(entry: ActorEntry, arguments: argparse.Namespace) -> int:
    """Serve an actor that needs nothing but the bus."""

    async def serve() -> int:
        async with opened(f"sandstream-{entry.name}") as bus:
            actor: Actor = load(entry.make)(bus.bus, arguments)
            await actor.start(bus.bus)
            try:
                title = f"{entry.name} actor is ready"
                return await until_stopped(arguments, ready_of(bus), title=title, hints=[])
            finally:
                await actor.stop(GRACE_S)

    return run_async(serve(), debug=arguments.debug)


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
    screen.line(screen.paint(title, "bold green"))
    facts = [
        ("bus", ready.url),
        ("home", ready.home or ""),
        ("pool", ready.pool or ""),
        ("agents", ", ".join(ready.agents)),
        ("node", ready.node or ""),
        ("sandboxes", ", ".join(ready.providers)),
        *ready.sandboxes.items(),
        ("group", ready.group or ""),
        *ready.tracing.items(),
        *ready.memory.items(),
    ]
    facts = [(name, value) for name, value in facts if value]
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        screen.line("  " + screen.paint(pad(name, width), "dim") + clean(value))
    for hint in hints:
        screen.line("  " + screen.paint(hint, "dim"))


def ready_of(bus: OpenBus, **facts: object) -> Ready:
    home = str(bus.server.home) if bus.server is not None else None
    url = bus.server.url if bus.server is not None else bus.bus.connection.url
    made = Ready(url=without_password(url), home=home, prefix=bus.bus.subjects.prefix)
    return msgspec.structs.replace(made, **facts)


def without_password(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]
