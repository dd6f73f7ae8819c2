"""A tracing actor in a process of its own, as `sandstream actor tracing` starts it.

Exports if OTEL_EXPORTER_OTLP_ENDPOINT is set. BENCH_ONLY_NEW=1: passes over what the log holds.

python tracing.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import lab_desk
from sandstream_actors.run.state import RunState
from sandstream_actors.tracing.actor import TracingActor, consumer_name
from sandstream_actors.tracing.export.exporter import span_exporters
from sandstream_actors.tracing.export.loop import ExportLoop
from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_bus.bus import Bus
from sandstream_bus.wire.subjects import RunId

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings

_kept: list[Any] = []


async def opened() -> lab_desk.Handler:
    os.nice(10)
    settings = Settings.from_env()
    connection = await open_bus(settings, name="bench-tracing")
    bus = connection.bus
    store = await TraceStore.open(store_path(settings.home, await installation_of(bus)))
    exporters = span_exporters(ExportSettings.from_env())
    export = ExportLoop(store, exporters) if exporters else None
    if export is not None:
        export.start()
    only_new = os.environ.get("BENCH_ONLY_NEW") == "1"
    actor = TracingActor(bus, store, export=export, only_new=only_new)
    await actor.start()
    _kept.extend((connection, actor, export))

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "catch_up":
                return await _catch_up(bus, store)
            case "fold":
                return await _fold(bus, RunId(request["run"]), request["times"])
            case "views":
                return await _views(store, request["run"], request["times"])
            case other:
                raise ValueError(other)

    return handle


async def _catch_up(bus: Bus, store: TraceStore) -> dict[str, Any]:
    """Wait until nothing is left to read and to export."""
    began = time.perf_counter()
    while True:
        info = await bus.topology.consumer_info(bus.connection, consumer_name("main"))
        assert info is not None
        left = info["num_pending"] + info["num_ack_pending"]
        if left == 0 and not await store.outbox(1):
            return {"wall_s": time.perf_counter() - began}
        await asyncio.sleep(0.02)


async def _fold(bus: Bus, run: RunId, times: int) -> dict[str, Any]:
    """A run's events to spans, beside the same events to the state that the harness works with."""
    events = await bus.log.read(run)
    began = time.perf_counter()
    for _ in range(times):
        RunTrace.of(run, events).spans()
    traced_s = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(times):
        RunState.of(run, events)
    state_s = time.perf_counter() - began
    return {"traced_s": traced_s, "state_s": state_s, "events": len(events) * times}


async def _views(store: TraceStore, run: str, times: int) -> dict[str, Any]:
    """What lists and pages ask the store, in milliseconds each."""
    took: dict[str, float] = {}
    for name, ask in (
        ("runs", lambda: store.runs(limit=20)),
        ("show", lambda: store.spans_of_tree(run)),
        ("stats", lambda: store.stats()),
    ):
        began = time.perf_counter()
        for _ in range(times):
            found = await ask()
            assert found, name
        took[name] = (time.perf_counter() - began) * 1000 / times
    return took


lab_desk.serve(opened, sys.argv[2])
