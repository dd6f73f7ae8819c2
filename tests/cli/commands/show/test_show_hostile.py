"""``show`` with reports of strangers in the trace: nothing of them hides what the run did."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_bus.wire.trace_context import run_span_id, trace_id_of
from support.nats_server import NatsServer, open_bus
from support.tracing.traced_log import LogWriter

from sandstream._inspect.traces import trace_tree

TRACE = trace_id_of("r-1")
DEEP = b"[" * 5000 + b"]" * 5000


def span(number: int, parent: str | None, **more: Any) -> dict[str, Any]:
    found = {"span_id": f"{number:016x}", "name": "theirs", "start_ns": 1, "end_ns": 2}
    return found | ({} if parent is None else {"parent_id": parent}) | more


def report(*spans: dict[str, Any]) -> bytes:
    body = {"type": "spans.reported", "trace_id": TRACE, "spans": list(spans)}
    return msgspec.json.encode(body)


def test_reports_hide_nothing_and_stop_nothing(nats_server: NatsServer) -> None:
    run = run_span_id("r-1")
    deep = report(span(1, run, attributes={"x": 0})).replace(b'"x":0', b'"x":' + DEEP)
    chain = [span(it, f"{it - 1:016x}" if it > 100 else run) for it in range(100, 5100)]
    cycle = [span(1, f"{2:016x}"), span(2, f"{1:016x}"), span(3, f"{3:016x}")]

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            writer = LogWriter(bus, "r-1")
            await writer.whole()
            events = await bus.log.read(writer.run)
            real = RunTrace.of("r-1", events).spans()
            lies = [span(0, None, span_id=it.span_id, name="LIE") for it in real]
            odd = [deep, b"nonsense", *(report(*it) for it in (lies, cycle, chain, chain))]
            for number, data in enumerate(odd):
                subject = bus.subjects.trace_spans(TRACE)
                await bus.connection.publish(subject, data, msg_id=f"report-{number}")
            looked = await trace_tree(bus, {"r-1": events})
            names = [it.name for it in looked.spans]
            assert names == [it.name for it in real] + ["theirs"] * len(chain)
            assert len(looked.timeline().rows) > len(chain)

    asyncio.run(main())
