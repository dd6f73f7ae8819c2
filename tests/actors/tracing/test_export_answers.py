"""Endpoints that answer as if all were well: redirects, web pages, spans that are rejected."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from actors.tracing.traces_by_hand import facts, opened, span
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from sandstream_actors.tracing.export.exporter import span_exporters
from sandstream_actors.tracing.export.line import DROPPED, Pace
from sandstream_actors.tracing.export.loop import ExportLoop
from sandstream_actors.tracing.export.otel_failures import Failure
from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_bus.wire.trace_context import span_id_of, trace_id_of
from support.waiting import eventually

FAST = Pace(first_s=0.05, longest_s=0.2, poll_s=0.05)
SPAN = span(trace_id=trace_id_of("r1"), span_id=span_id_of("r1", "run"))
PROTOBUF = "application/x-protobuf"


def partly(count: int, why: str) -> bytes:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = count
    answer.partial_success.error_message = why
    return bytes(answer.SerializeToString())


class Answering:
    """What the endpoint says, and what it was asked."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.status, self.headers, self.body = status, headers, body
        self.paths: list[str] = []


@contextmanager
def endpoint(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            answering.paths.append(self.path)
            self.send_response(answering.status)
            for name, value in answering.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answering.body)))
            self.end_headers()
            self.wfile.write(answering.body)

        def log_message(self, format: str, *args: object) -> None:
            """Tests look at the answers."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def exported() -> Failure | None:
    async def main() -> Failure | None:
        (exporter,) = span_exporters(ExportSettings.from_env())
        try:
            await exporter.export([SPAN])
            return exporter.failure
        finally:
            await exporter.close()

    return asyncio.run(main())


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_takes_no_spans(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gets neither them nor the headers with the key: nobody has chosen that place."""
    elsewhere = "/elsewhere?api_key=hunter2hunter2"
    answering = Answering(status, {"location": elsewhere})
    with endpoint(answering, monkeypatch):
        failure = exported()
    assert failure is not None and not failure.is_for_good, "it waits for better settings"
    assert f"a redirect ({status}) to /elsewhere" in failure.reason
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in failure.reason
    assert "hunter2hunter2" not in failure.reason
    assert answering.paths == ["/v1/traces"]


def test_a_web_page_takes_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = Answering(200, {"content-type": "text/html; charset=utf-8"}, b"<h1>Log in</h1>")
    with endpoint(answering, monkeypatch):
        failure = exported()
    assert failure is not None and not failure.is_for_good
    assert "answers with a web page" in failure.reason


@pytest.mark.parametrize(
    ("kind", "body"),
    [(PROTOBUF, b""), (PROTOBUF, b"\xff\xff nonsense"), ("application/json", b"{}"), ("", b"ok")],
    ids=["as it should be", "nonsense", "JSON", "something"],
)
def test_other_answers_are_what_their_status_says(
    kind: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with endpoint(Answering(200, {"content-type": kind}, body), monkeypatch):
        assert exported() is None


def test_rejected_spans_are_counted_told_and_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answering = Answering(200, {"content-type": PROTOBUF}, partly(1, "too old"))

    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            await store.record(facts(), [SPAN], export=True)
            exporters = span_exporters(ExportSettings.from_env())
            loop = ExportLoop(store, exporters, pace=FAST)
            loop.start()

            async def is_counted() -> bool:
                found = await store.counters()
                return found.get(DROPPED) == 1 and found["outbox"] == 0

            await eventually(is_counted, what="the span is counted")
            await loop.stop()
            await exporters[0].close()

    with endpoint(answering, monkeypatch), caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert answering.paths == ["/v1/traces"]
    (record,) = caplog.records
    assert record.getMessage() == "dropped spans that the endpoint refuses"
    assert "too old" in record.__dict__["reason"]
