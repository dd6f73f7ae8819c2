"""Exporters that a program may add, against a real HTTP server; batches and what gets lost."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.tracing.kept_traces import recording

from sandstream import UserError, custom_span, function_span, generation_span, trace
from sandstream.tracing import TracingExporter, set_trace_processors, set_tracing_export_api_key
from sandstream.tracing.backend_exporter import INGEST_ENDPOINT
from sandstream.tracing.processors import (
    BackendSpanExporter,
    BatchTraceProcessor,
    ConsoleSpanExporter,
    default_exporter,
    default_processor,
)
from sandstream.tracing.span_data import GenerationSpanData


class Backend:
    """Answers with the given status codes, then with 200; keeps what it got."""

    def __init__(self, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self.statuses = list(statuses)
        self.headers = headers or {}
        self.got: list[tuple[dict[str, str], dict[str, Any]]] = []

    @contextmanager
    def serving(self) -> Iterator[str]:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                backend.got.append((dict(self.headers), json.loads(body)))
                self.send_response(backend.statuses.pop(0) if backend.statuses else 200)
                for name, value in backend.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/ingest"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def exporter_to(url: str, **options: Any) -> BackendSpanExporter:
    settings: dict[str, Any] = {"api_key": "sk-1", "endpoint": url, "base_delay": 0.001}
    return BackendSpanExporter(**(settings | options))


def some_items(**options: Any) -> list[Any]:
    work = {"group_id": "g", **options}
    with recording() as recorder, trace("Work", **work), custom_span("a", {"n": 1}):
        pass
    return [*recorder.traces, *recorder.ended]


def test_batches_reach_the_backend() -> None:
    backend = Backend()
    with backend.serving() as url, recording():
        exporter = exporter_to(url, organization="org", project="proj")
        processor = BatchTraceProcessor(exporter, max_batch_size=2, schedule_delay=60)
        set_trace_processors([processor])
        with trace("Work", trace_id="trace_1"), custom_span("a"), custom_span("b"):
            pass
        processor.shutdown()
    assert [len(body["data"]) for _, body in backend.got] == [2, 1]
    headers, body = backend.got[0]
    assert headers["Authorization"] == "Bearer sk-1"
    assert (headers["Openai-Organization"], headers["Openai-Project"]) == ("org", "proj")
    assert headers["Openai-Beta"] == "traces=v1"
    assert body["data"][0] == {
        "object": "trace",
        "id": "trace_1",
        "workflow_name": "Work",
        "group_id": None,
        "metadata": None,
    }
    assert body["data"][1]["span_data"] == {"type": "custom", "name": "b", "data": {}}


def test_a_full_queue_is_sent_at_once() -> None:
    arrived = threading.Event()

    class Exporter(TracingExporter):
        def export(self, items: list[Any]) -> None:
            arrived.set()

    processor = BatchTraceProcessor(Exporter(), max_queue_size=4, schedule_delay=60)
    for item in some_items()[:1] * 2:
        processor.on_span_end(item)
    assert arrived.wait(20)
    processor.shutdown()


def test_too_many_are_dropped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    may_go_on, busy = threading.Event(), threading.Event()

    class Slow(TracingExporter):
        def export(self, items: list[Any]) -> None:
            busy.set()
            may_go_on.wait(20)

    processor = BatchTraceProcessor(Slow(), max_queue_size=1, schedule_delay=60)
    (item, _) = some_items()
    with caplog.at_level(logging.WARNING):
        processor.on_span_end(item)
        assert busy.wait(20)
        for _ in range(3):
            processor.on_span_end(item)
    may_go_on.set()
    processor.shutdown()
    assert processor.dropped == 2
    assert "spans are dropped: too many wait" in caplog.messages


def test_an_exporter_that_raises_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(TracingExporter):
        calls = 0

        def export(self, items: list[Any]) -> None:
            self.calls += 1
            raise ValueError("broken")

    exporter = Broken()
    processor = BatchTraceProcessor(exporter, schedule_delay=60)
    with caplog.at_level(logging.ERROR):
        for item in some_items():
            processor.on_span_end(item)
            processor.force_flush()
    processor.shutdown()
    assert exporter.calls == 2
    assert caplog.messages == ["spans are lost: their exporter failed"] * 2


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_failed_for_a_moment_is_sent_again(status: int) -> None:
    backend = Backend(status, status, headers={"Retry-After": "0.001"})
    with backend.serving() as url:
        exporter_to(url).export(some_items())
    assert len(backend.got) == 3


def test_what_is_refused_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    for backend in (Backend(400), Backend(503, headers={"x-should-retry": "false"})):
        with backend.serving() as url, caplog.at_level(logging.ERROR):
            exporter_to(url).export(some_items())
        assert len(backend.got) == 1
    assert caplog.messages == ["the backend refuses traces"] * 2


def test_a_backend_that_is_down_is_given_up_on(caplog: pytest.LogCaptureFixture) -> None:
    with Backend().serving() as url:
        pass
    with caplog.at_level(logging.ERROR):
        exporter_to(url, max_retries=2).export(some_items())
    assert caplog.messages == ["traces are lost: the backend cannot be reached"]


def test_at_the_end_of_a_program_nobody_waits_for_a_backend() -> None:
    backend = Backend(*[503] * 50, headers={"Retry-After": "1000"})
    with backend.serving() as url:
        exporter = exporter_to(url, max_retries=50, max_delay=1000)
        processor = BatchTraceProcessor(exporter, schedule_delay=60)
        for item in some_items():
            processor.on_span_end(item)
        processor.shutdown(timeout=0.2)  # the test's own limit would end it otherwise
    assert len(backend.got) <= 2


def test_a_trace_may_have_a_key_of_its_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    backend = Backend()
    with backend.serving() as url, caplog.at_level(logging.WARNING):
        exporter = exporter_to(url, api_key=None)
        exporter.export([*some_items(tracing={"api_key": "sk-2"}), *some_items()])
    assert [headers["Authorization"] for headers, _ in backend.got] == ["Bearer sk-2"]
    assert caplog.messages == ["traces are not exported: OPENAI_API_KEY is not set"]


def test_values_that_are_not_json_are_sent_as_text() -> None:
    backend = Backend()
    with recording() as recorder, trace("Work"), custom_span("a", {"x": object(), "s": {1}}):
        pass
    with backend.serving() as url:
        exporter_to(url).export(list(recorder.ended))
    data = backend.got[0][1]["data"][0]["span_data"]["data"]
    assert data["x"].startswith("<object object")
    assert data["s"] == [1]


def test_openai_gets_what_its_endpoint_takes() -> None:
    with recording() as recorder, trace("Work"):
        said = [{"role": "assistant", "content": "x" * 200_000, "reasoning_content": "secret"}]
        usage = {"input_tokens": 1, "output_tokens": 2, "requests": 3}
        with generation_span(input=said, output=said[:0], usage=usage):
            pass
        with function_span("f", input="y" * 200_000):
            pass
    sendable = BackendSpanExporter(endpoint=INGEST_ENDPOINT)._sendable
    generation, function = [sendable(it.export() or {})["span_data"] for it in recorder.ended]
    assert len(json.dumps(generation)) < 100_000
    assert "secret" not in json.dumps(generation)
    assert generation["usage"] == {
        "input_tokens": 1,
        "output_tokens": 2,
        "details": {"requests": 3},
    }
    assert function["input"].endswith("… (cut)")
    elsewhere = BackendSpanExporter(endpoint="http://127.0.0.1:1/x")._sendable
    data = recorder.ended[0].span_data
    assert isinstance(data, GenerationSpanData)
    assert elsewhere(recorder.ended[0].export() or {})["span_data"]["input"] == data.input


def test_the_console_shows_spans(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleSpanExporter().export(some_items())
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("trace Work (trace_")
    assert "'name': 'a', 'data': {'n': 1}" in second


def test_nothing_goes_to_openai_unless_a_program_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    from sandstream.tracing.provider import DefaultTraceProvider

    assert not DefaultTraceProvider().has_processors
    assert default_processor() is default_processor()
    assert default_exporter().api_key == "sk-environment"
    set_tracing_export_api_key("sk-own")
    assert default_exporter().api_key == "sk-own"
    assert default_exporter().endpoint == INGEST_ENDPOINT


def test_bad_settings_are_refused() -> None:
    with pytest.raises(UserError, match="must be a URL; it is 'file:///x'"):
        BackendSpanExporter(endpoint="file:///x")
    with pytest.raises(UserError, match="max_queue_size and max_batch_size"):
        BatchTraceProcessor(ConsoleSpanExporter(), max_queue_size=0)
