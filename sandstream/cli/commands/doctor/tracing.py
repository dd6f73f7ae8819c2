"""What ``doctor`` says about traces: who makes them, what is kept here, where they go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from pathlib import Path
from typing import Any

from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_actors.tracing.store.errors import StoreError
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.queries import TraceReader
from sandstream_actors.tracing.tracing_settings import TracingSettings
from sandstream_bus.counts import numbered
from sandstream_bus.errors import SandstreamError

from sandstream.cli.commands.doctor.actors import Look
from sandstream.cli.commands.doctor.checks import Check, ok, problem, warning
from sandstream.cli.terminal.render import size


async def check_tracing(look: Look) -> AsyncIterator[Check]:
    """Who makes traces, what is kept here, where they go."""
    yield _actors(look.consumers, look.served, look.bus.topology.log)
    path = store_path(look.settings.home, await installation_of(look.bus))
    yield await _store(path)
    yield _export()


def _actors(consumers: list[dict[str, Any]], served: Set[str], log: str) -> Check:
    """A tracing actor is optional; warn only if its consumer has pending messages."""
    found: list[str] = []
    behind: dict[str, int] = {}
    for consumer in consumers:
        name = str(consumer.get("name", ""))
        if name.startswith("tracing-"):
            if name in served:
                found.append(name.removeprefix("tracing-"))
            elif pending := consumer.get("num_pending", 0):
                behind[name.removeprefix("tracing-")] = pending
    text = f"live in group {', '.join(sorted(found))}" if found else "no actor is live"
    if behind:
        group = min(behind)
        waits = ", ".join(f"{number} in group {it}" for it, number in sorted(behind.items()))
        return warning(
            "tracing",
            f"{text}; messages wait for an actor: {waits}",
            f"start it: sandstream actor tracing --group {group}; "
            f"or, if its traces are not needed: nats consumer rm {log} tracing-{group}",
        )
    return ok("tracing", text)


async def _store(path: Path) -> Check:
    try:
        reader = await TraceReader.open_to_read(path)
        if reader is None:
            return ok("traces", "none are stored on this machine")
        try:
            counters, runs = await reader.counters(), await reader.run_count()
            stored = await asyncio.to_thread(lambda: path.stat().st_size)
        finally:
            await reader.close()
    except StoreError as error:
        return problem("traces", str(error), "traces are stored again when this is fixed")
    found = f"{numbered(runs, 'run')}, {size(stored)} in {path}"
    if waiting := counters.get("outbox", 0):
        found += ", " + numbered(waiting, "span waits", "spans wait") + " to be exported"
    if dropped := counters.get("spans_dropped", 0):
        return warning(
            "traces",
            f"{found}, {numbered(dropped, 'span was', 'spans were')} dropped",
            "the endpoint refused them, or was down for too long: see the log of the actor",
        )
    return ok("traces", found)


def _export() -> Check:
    """Where an actor with this command's environment would export."""
    try:
        settings = TracingSettings.of()
    except SandstreamError as error:
        return problem("export", str(error), "correct the variable where the tracing actor runs")
    export: ExportSettings = settings.export
    traces = ", ".join(export.traces) or "nowhere"
    metrics = ", ".join(export.metrics) or "nowhere"
    contents = "with contents" if settings.contents else "without contents"
    return ok("export", f"traces: {traces}, {contents}; metrics: {metrics}")
