"""``sandstream actor tracing``: one replica of the tracing actor, with its store and exporters."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from sandstream_actors.tracing.actor import TracingActor
from sandstream_actors.tracing.export.exporter import Exporter, span_exporters
from sandstream_actors.tracing.export.loop import ExportLoop
from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_actors.tracing.metrics.instruments import Metrics
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_actors.tracing.tracing_settings import TracingSettings
from sandstream_bus.environment import variable

from sandstream._surface.connection import OpenBus
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.services.launch import (
    chosen_tracing,
    opened,
    ready_of,
    until_stopped,
    without_password,
)
from sandstream.cli.session import run_async
from sandstream.settings import Settings

_GRACE_S = 5.0
_NICE = 10
"""Low priority: the tracing actor only reads."""

_SQLITE = b"SQLite format 3\0"
_SUFFIXES = (".db", ".sqlite", ".sqlite3")
"""A file with such a suffix may be a damaged store, even if its content is not SQLite."""


def serve_traces(arguments: argparse.Namespace) -> int:
    settings = chosen_tracing(
        group=arguments.group, contents=arguments.content, redact=arguments.redact
    )
    os.nice(_NICE)
    return run_async(_serve(arguments, settings), debug=arguments.debug)


async def _serve(arguments: argparse.Namespace, settings: TracingSettings) -> int:
    async with contextlib.AsyncExitStack() as stack:
        exporters = await stack.enter_async_context(_exporters(settings.export))
        bus = await stack.enter_async_context(opened("sandstream-tracing"))
        store = await stack.enter_async_context(_store(bus, arguments.store))
        metrics = await stack.enter_async_context(_metrics(settings.export))
        only_new = bool(arguments.only_new)
        await stack.enter_async_context(
            _working(bus, store, exporters, metrics, settings, only_new=only_new)
        )
        return await until_stopped(
            arguments,
            ready_of(bus, group=settings.group, tracing=_facts(store, metrics, settings)),
            title="tracing actor is ready",
            hints=["look: sandstream show RUN, sandstream stats"],
        )


@contextlib.asynccontextmanager
async def _exporters(settings: ExportSettings) -> AsyncIterator[list[Exporter]]:
    exporters = span_exporters(settings)
    try:
        yield exporters
    finally:
        for exporter in exporters:
            await exporter.close()


@contextlib.asynccontextmanager
async def _metrics(settings: ExportSettings) -> AsyncIterator[Metrics | None]:
    if not settings.metrics:
        yield None
        return
    metrics = Metrics(settings)
    try:
        yield metrics
    finally:
        await metrics.close()


@contextlib.asynccontextmanager
async def _store(bus: OpenBus, path: str | None) -> AsyncIterator[TraceStore]:
    home = Settings.from_env().home
    file = _chosen(path) if path else store_path(home, await installation_of(bus.bus))
    store = await TraceStore.open(file)
    try:
        yield store
    finally:
        await store.close()


def _chosen(path: str) -> Path:
    """Check the file of ``--store``: a file that never was a store is not replaced."""
    file = Path(path)
    if file.is_dir():
        raise CliError(
            Exit.USAGE, f"{path} is a directory: name the file, such as {file / 'traces.db'}"
        )
    if file.suffix not in _SUFFIXES and file.is_file():
        with file.open("rb") as content:
            start = content.read(len(_SQLITE))
        if start not in (b"", _SQLITE):
            raise CliError(
                Exit.USAGE, f"{path} exists and is not a trace store: name another file for --store"
            )
    return file


@contextlib.asynccontextmanager
async def _working(
    bus: OpenBus,
    store: TraceStore,
    exporters: list[Exporter],
    metrics: Metrics | None,
    settings: TracingSettings,
    *,
    only_new: bool,
) -> AsyncIterator[None]:
    """The actor reads; beside it the exporter empties the outbox."""
    export: ExportLoop | None = None
    if exporters:
        lock = store.path.with_name(f"{store.path.name}.export-lock")
        export = ExportLoop(store, exporters, lock=lock)
        export.start()
    actor = TracingActor(
        bus.bus,
        store,
        group=settings.group,
        export=export,
        metrics=metrics,
        sampler=settings.export.sampler,
        contents=settings.contents,
        redact=settings.redactor,
        only_new=only_new,
    )
    try:
        await actor.start()
        yield
    finally:
        await actor.stop(_GRACE_S)
        if export is not None:
            await export.stop()


def _facts(store: TraceStore, metrics: Metrics | None, settings: TracingSettings) -> dict[str, str]:
    """Where traces are kept and exported, and what is in them."""
    traces = [
        _target(it, "TRACES", settings.export.traces_protocol) for it in settings.export.traces
    ]
    measured = [
        f"prometheus (http://{settings.export.prometheus_host}:{metrics.prometheus_port}/metrics)"
        if it == "prometheus" and metrics is not None
        else _target(it, "METRICS", settings.export.metrics_protocol)
        for it in settings.export.metrics
    ]
    hook = f", redacted by {settings.hook}" if settings.hook else ""
    return {
        "store": str(store.path),
        "export": ", ".join(traces) or _nowhere(),
        "metrics": ", ".join(measured) or "none",
        "contents": f"{'exported' if settings.contents else 'left out'}{hook}",
    }


def _nowhere() -> str:
    """That nothing is exported, and which variable makes it so."""
    if variable("OTEL_SDK_DISABLED").strip().lower() == "true":
        return "none (OTEL_SDK_DISABLED is set)"
    if variable("OTEL_TRACES_EXPORTER"):
        return "none (OTEL_TRACES_EXPORTER says so)"
    return "none (OTEL_EXPORTER_OTLP_ENDPOINT is not set)"


def _target(name: str, signal: str, protocol: str) -> str:
    if name != "otlp":
        return name
    variables = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    endpoint = next(filter(None, map(variable, variables)), "")
    return f"otlp ({protocol}, {without_password(endpoint) or 'its default endpoint'})"
