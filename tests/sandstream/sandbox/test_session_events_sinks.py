"""Sinks: how events get to functions, files, workspaces and web services, and what failures do."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandstream.sandbox.errors import WorkspaceReadNotFoundError
from sandstream.sandbox.session.events import (
    EventPayloadPolicy,
    SandboxSessionEvent,
    SandboxSessionStartEvent,
    event_to_json_line,
)
from sandstream.sandbox.session.manager import Instrumentation, SessionEvents
from sandstream.sandbox.session.sinks import (
    CallbackSink,
    ChainedSink,
    DeliveryMode,
    EventSink,
    HttpProxySink,
    JsonlOutboxSink,
    OnErrorPolicy,
    WorkspaceJsonlSink,
)

CODES_OK, CODES_DOWN = 204, 503


class FolderSession:
    """A session whose workspace is a folder; its operations are told, as those of others are."""

    def __init__(self, root: Path, *sinks: EventSink) -> None:
        self.root = root
        self.state = SimpleNamespace(session_id=uuid.uuid4())
        self.is_up = True
        self.skipped: list[Path] = []
        self.instrumentation = Instrumentation(sinks=sinks)
        self.events = SessionEvents(self.instrumentation, self.state.session_id)
        self.events.bind_session(cast(Any, self))

    async def start(self) -> None:
        async with self.events.operation("start"):
            self.is_up = True

    async def shutdown(self) -> None:
        async with self.events.operation("shutdown"):
            self.is_up = False

    async def stop(self) -> None:
        async with self.events.operation("stop"):
            pass

    async def running(self) -> bool:
        async with self.events.operation("running"):
            return self.is_up

    async def read(self, path: Path) -> io.IOBase:
        async with self.events.operation("read", path=str(path)):
            if not (self.root / path).exists():
                raise WorkspaceReadNotFoundError(path=path)
            return io.BytesIO((self.root / path).read_bytes())

    async def read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        file = await self.read(path)
        return cast(io.BytesIO, file).read(max_bytes)

    async def write(self, path: Path, data: io.BytesIO) -> None:
        async with self.events.operation("write", path=str(path)):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(data.read())

    def register_persist_workspace_skip_path(self, path: Path) -> Path:
        self.skipped.append(path)
        return path

    @property
    def log(self) -> Path:
        return self.root / f"logs/events-{self.state.session_id}.jsonl"


class FailingSink(EventSink):
    def __init__(self, mode: DeliveryMode, on_error: OnErrorPolicy) -> None:
        self.mode, self.on_error = mode, on_error

    async def handle(self, event: SandboxSessionEvent) -> None:
        raise ValueError(f"cannot take {event.op}")


def _told_in(path: Path) -> list[tuple[str, str]]:
    lines = [json.loads(it) for it in path.read_text().splitlines()]
    return [(it["op"], it["phase"]) for it in lines]


def _event(session_id: uuid.UUID | None = None) -> SandboxSessionStartEvent:
    return SandboxSessionStartEvent(
        session_id=session_id or uuid.uuid4(), seq=1, op="exec", span_id="sandbox_op_1"
    )


# --- defaults ----------------------------------------------------------------------------------


def test_defaults_of_the_sinks() -> None:
    callback = CallbackSink(lambda event, session: None)
    assert (callback.mode, callback.on_error, callback.name) == ("sync", "raise", None)
    workspace = WorkspaceJsonlSink()
    assert workspace.workspace_relpath == Path("logs/events-{session_id}.jsonl")
    assert (workspace.ephemeral, workspace.max_bytes) == (False, None)
    proxy = HttpProxySink("http://127.0.0.1")
    assert (proxy.headers, proxy.timeout_s, proxy.spool_path) == ({}, 5.0, None)
    for sink in (JsonlOutboxSink(Path("x")), workspace, proxy):
        assert (sink.mode, sink.on_error) == ("best_effort", "log")
    chained = ChainedSink(callback, proxy)
    assert chained.sinks == [callback, proxy]
    assert (chained.mode, chained.on_error, chained.payload_policy) == ("sync", "raise", None)


# --- callbacks ---------------------------------------------------------------------------------


def test_callbacks_get_the_event_and_the_session_of_the_event(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []

    async def remember(event: SandboxSessionEvent, session: Any) -> None:
        await asyncio.sleep(0)
        seen.append((f"{event.op} {event.phase}", session))

    sink = CallbackSink(remember, name="audit")

    async def scenario() -> None:
        first, second = FolderSession(tmp_path, sink), FolderSession(tmp_path, sink)
        await first.start()
        await second.stop()
        assert seen == [
            ("start start", first),
            ("start finish", first),
            ("stop start", second),
            ("stop finish", second),
        ]

    asyncio.run(scenario())
    assert sink.name == "audit"


def test_a_callback_may_use_the_session_without_more_events(tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(event: SandboxSessionEvent, session: Any) -> None:
        seen.append(f"{event.op} {event.phase}")
        await session.write(Path("note.txt"), io.BytesIO(event.op.encode()))
        await session.events.flush()  # must not wait for the very delivery it is in

    async def scenario(mode: DeliveryMode) -> None:
        seen.clear()
        session = FolderSession(tmp_path, CallbackSink(note, mode=mode, on_error="log"))
        await session.start()
        await session.events.flush()

    modes: tuple[DeliveryMode, ...] = ("sync", "async", "best_effort")
    for mode in modes:
        asyncio.run(scenario(mode))
        assert seen == ["start start", "start finish"]
    assert (tmp_path / "note.txt").read_text() == "start"


def test_a_callback_sink_without_a_session_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"or call bind\(session\)"):
        asyncio.run(CallbackSink(lambda event, session: None).handle(_event()))


# --- files of the host -------------------------------------------------------------------------


def test_lines_get_into_the_outbox_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.jsonl"

    async def scenario() -> None:
        session = FolderSession(tmp_path, JsonlOutboxSink(path))
        for _ in range(20):
            await session.running()
        await session.events.flush()

    asyncio.run(scenario())
    assert [json.loads(it)["seq"] for it in path.read_text().splitlines()] == list(range(1, 41))
    asyncio.run(JsonlOutboxSink(path).handle(event := _event()))
    assert path.read_text().endswith("}\n" + event_to_json_line(event))


def test_an_outbox_that_cannot_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")

    async def scenario() -> None:
        session = FolderSession(tmp_path, JsonlOutboxSink(tmp_path / "file" / "events.jsonl"))
        await session.start()
        await session.events.flush()

    with caplog.at_level(logging.WARNING, logger="sandstream"):
        asyncio.run(scenario())
    assert [it.getMessage().split(";")[0] for it in caplog.records] == [
        "sandbox event sink JsonlOutboxSink failed"
    ] * 2


# --- files of the workspace --------------------------------------------------------------------


def test_the_workspace_gets_a_log_once_the_sandbox_runs(tmp_path: Path) -> None:
    async def scenario() -> FolderSession:
        session = FolderSession(tmp_path, WorkspaceJsonlSink(mode="sync"))
        session.is_up = False
        async with session.events.operation("start"):
            assert not session.log.exists()
            session.is_up = True
        await session.stop()
        await session.shutdown()
        return session

    session = asyncio.run(scenario())
    assert _told_in(session.log) == [
        ("start", "start"),
        ("start", "finish"),
        ("stop", "start"),
        ("stop", "finish"),
        ("shutdown", "start"),
    ]
    assert session.skipped == []


def test_a_log_that_is_there_goes_on(tmp_path: Path) -> None:
    sink = WorkspaceJsonlSink(workspace_relpath=Path("e-{session_id_hex}.jsonl"), mode="sync")

    async def scenario() -> Path:
        session = FolderSession(tmp_path, sink)
        path = tmp_path / f"e-{session.state.session_id.hex}.jsonl"
        path.write_text('{"op":"old","phase":"finish"}\n')
        await session.start()
        return path

    path = asyncio.run(scenario())
    assert _told_in(path) == [("old", "finish"), ("start", "start"), ("start", "finish")]


def test_a_path_with_other_braces_is_taken_as_it_is(tmp_path: Path) -> None:
    sink = WorkspaceJsonlSink(workspace_relpath=Path("{what}.jsonl"), mode="sync")
    asyncio.run(FolderSession(tmp_path, sink).start())
    assert len(_told_in(tmp_path / "{what}.jsonl")) == 2


def test_an_ephemeral_log_stays_out_of_snapshots(tmp_path: Path) -> None:
    session = FolderSession(tmp_path, WorkspaceJsonlSink(ephemeral=True))
    assert session.skipped == [session.log.relative_to(tmp_path)]


def test_lines_are_written_in_batches_and_before_a_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        session = FolderSession(tmp_path, WorkspaceJsonlSink(mode="sync", flush_every=5))
        await session.running()
        await session.running()
        assert not session.log.exists()
        await session.running()
        assert len(_told_in(session.log)) == 5
        await session.stop()
        assert len(_told_in(session.log)) == 8

    asyncio.run(scenario())


def test_sessions_that_share_a_sink_have_a_log_each(tmp_path: Path) -> None:
    sink = WorkspaceJsonlSink()

    async def scenario() -> None:
        first, second = FolderSession(tmp_path, sink), FolderSession(tmp_path, sink)
        await first.start()
        await second.stop()
        for session in (first, second):
            await session.events.flush()
        assert _told_in(first.log) == [("start", "start"), ("start", "finish")]
        assert _told_in(second.log) == [("stop", "start"), ("stop", "finish")]

    asyncio.run(scenario())


def test_a_log_at_its_limit_stops_for_good_and_stays_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        probe = FolderSession(tmp_path, WorkspaceJsonlSink(mode="sync"))
        await probe.start()
        room_for_both = probe.log.stat().st_size + 100

        sink = WorkspaceJsonlSink(mode="sync", on_error="raise", max_bytes=room_for_both)
        session = FolderSession(tmp_path, sink)
        await session.start()
        before = session.log.read_bytes()
        with pytest.raises(RuntimeError, match="sink failed") as caught:
            await session.stop()
        assert f"max_bytes={room_for_both}" in str(caught.value.__cause__)
        await session.stop()
        assert session.log.read_bytes() == before
        later = FolderSession(tmp_path, sink)
        await later.start()
        assert not later.log.exists()

    asyncio.run(scenario())


def test_lines_kept_back_have_the_same_limit(tmp_path: Path) -> None:
    sink = WorkspaceJsonlSink(mode="sync", on_error="raise", max_bytes=10, flush_every=9)
    with pytest.raises(RuntimeError, match="sink failed"):
        asyncio.run(FolderSession(tmp_path, sink).start())


def test_a_limit_must_be_positive_and_no_session_means_no_log() -> None:
    with pytest.raises(ValueError, match="max_bytes must be positive"):
        WorkspaceJsonlSink(max_bytes=0)
    assert asyncio.run(WorkspaceJsonlSink().handle(_event())) is None


# --- web services ------------------------------------------------------------------------------


class Collector(ThreadingHTTPServer):
    """Keeps what is posted to it and answers with one code."""

    daemon_threads = True

    def __init__(self, code: int) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.code = code
        self.posts: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/events"


class CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast(Collector, self.server)
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.posts.append((self.path, headers, body))
        self.send_response(server.code)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Not into the test's output."""


@contextmanager
def collector(code: int = CODES_OK) -> Iterator[Collector]:
    server = Collector(code)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_events_are_posted_as_json(tmp_path: Path) -> None:
    spool = tmp_path / "spool.jsonl"
    event = _event()
    with collector() as server:
        sink = HttpProxySink(server.url, headers={"authorization": "Bearer t"}, spool_path=spool)
        asyncio.run(sink.handle(event))
    ((path, headers, body),) = server.posts
    assert path == "/events"
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Bearer t"
    # The body that openai-agents 0.24.0 posts: compact JSON, fields as they are declared.
    assert body.decode() == (
        f'{{"version":1,"event_id":"{event.event_id}",'
        f'"ts":{json.dumps(event.model_dump(mode="json")["ts"])},'
        f'"session_id":"{event.session_id}","seq":1,"op":"exec","phase":"start",'
        f'"span_id":"sandbox_op_1","parent_span_id":null,"trace_id":null,"data":{{}}}}'
    )
    assert not spool.exists()


def test_what_is_refused_is_spooled_and_raised(tmp_path: Path) -> None:
    spool = tmp_path / "new" / "spool.jsonl"
    events = [_event(), _event()]
    with collector(CODES_DOWN) as server:
        sink = HttpProxySink(server.url, spool_path=spool)
        for event in events:
            with pytest.raises(RuntimeError, match="http proxy sink POST failed: HTTP Error 503"):
                asyncio.run(sink.handle(event))
    assert spool.read_text() == "".join(map(event_to_json_line, events))


def test_a_service_that_is_gone_is_spooled_too(tmp_path: Path) -> None:
    with collector() as server:
        url = server.url
    sink = HttpProxySink(url, spool_path=tmp_path / "spool.jsonl")
    event = _event()
    with pytest.raises(RuntimeError, match="http proxy sink POST failed"):
        asyncio.run(sink.handle(event))
    assert (tmp_path / "spool.jsonl").read_text() == event_to_json_line(event)


def test_a_spool_that_cannot_be_written_does_not_hide_the_failed_post(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with collector() as server:
        url = server.url
    sink = HttpProxySink(url, spool_path=tmp_path)
    with (
        caplog.at_level(logging.WARNING, logger="sandstream"),
        pytest.raises(RuntimeError, match="http proxy sink POST failed"),
    ):
        asyncio.run(sink.handle(_event()))
    assert [it.getMessage() for it in caplog.records] == [
        f"could not write the event spool {tmp_path}"
    ]


# --- failures and modes ------------------------------------------------------------------------


def _log_of(session: FolderSession, caplog: pytest.LogCaptureFixture) -> list[str]:
    async def scenario() -> None:
        await session.start()
        await session.events.flush()

    with caplog.at_level(logging.WARNING, logger="sandstream"):
        asyncio.run(scenario())
    return [it.getMessage() for it in caplog.records]


def test_a_sync_sink_that_raises_fails_the_operation(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="sandbox event sink failed: FailingSink") as caught:
        asyncio.run(FolderSession(tmp_path, FailingSink("sync", "raise")).start())
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_async_sink_that_raises_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot take start"):
        asyncio.run(FolderSession(tmp_path, FailingSink("async", "raise")).start())


@pytest.mark.parametrize("mode", ["sync", "async", "best_effort"])
@pytest.mark.parametrize(("on_error", "logged"), [("log", 2), ("ignore", 0)])
def test_failures_are_logged_or_ignored(
    mode: DeliveryMode,
    on_error: OnErrorPolicy,
    logged: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert len(_log_of(FolderSession(tmp_path, FailingSink(mode, on_error)), caplog)) == logged


def test_best_effort_never_raises_but_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FailingSink("best_effort", "raise")
    assert len(_log_of(FolderSession(tmp_path, sink), caplog)) == 2
    caplog.clear()
    assert len(_log_of(FolderSession(tmp_path, ChainedSink(sink)), caplog)) == 2


@pytest.mark.parametrize("mode", ["async", "best_effort"])
def test_operations_do_not_wait_for_sinks_in_the_background(
    mode: DeliveryMode, tmp_path: Path
) -> None:
    async def scenario() -> None:
        may_go_on = asyncio.Event()
        seen: list[str] = []

        async def slow(event: SandboxSessionEvent, session: object) -> None:
            await may_go_on.wait()
            seen.append(event.phase)

        session = FolderSession(tmp_path, CallbackSink(slow, mode=mode, on_error="log"))
        await session.start()
        assert seen == []
        may_go_on.set()
        await session.events.flush()
        assert seen == ["start", "finish"]

    asyncio.run(scenario())


def test_background_deliveries_keep_the_order_of_the_events(tmp_path: Path) -> None:
    seen: list[str] = []

    async def slow_at_first(event: SandboxSessionEvent, session: object) -> None:
        if event.phase == "start":
            for _ in range(10):  # time enough for a later delivery to overtake
                await asyncio.sleep(0)
        seen.append(event.phase)

    async def scenario() -> None:
        session = FolderSession(tmp_path, CallbackSink(slow_at_first, mode="best_effort"))
        await session.start()
        await session.events.flush()

    asyncio.run(scenario())
    assert seen == ["start", "finish"]


def test_an_unknown_mode_is_an_error(tmp_path: Path) -> None:
    sink = CallbackSink(lambda event, session: None, mode=cast(Any, "later"))
    with pytest.raises(AssertionError, match="later"):
        asyncio.run(FolderSession(tmp_path, sink).start())


def test_a_chain_delivers_in_order_with_a_policy_for_each(tmp_path: Path) -> None:
    seen: list[str] = []

    async def slow(event: SandboxSessionEvent, session: object) -> None:
        await asyncio.sleep(0)
        seen.append(f"slow {event.data}")

    def fast(event: SandboxSessionEvent, session: object) -> None:
        seen.append(f"fast {event.data}")

    no_length = EventPayloadPolicy(include_write_len=False)
    chain = ChainedSink(
        CallbackSink(slow, mode="best_effort", payload_policy=no_length),
        ChainedSink(FailingSink("sync", "ignore"), CallbackSink(fast)),
    )

    async def scenario() -> None:
        session = FolderSession(tmp_path, chain)
        async with session.events.operation("write", path="a", bytes=3):
            assert seen == ["slow {'path': 'a'}", "fast {'path': 'a', 'bytes': 3}"]

    asyncio.run(scenario())
    assert len(seen) == 4


def test_a_sink_can_be_added_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        session = FolderSession(tmp_path)
        await session.start()
        sink = JsonlOutboxSink(tmp_path / "late.jsonl", mode="sync")
        session.instrumentation.add_sink(sink)
        assert session.instrumentation.sinks == [sink]
        await session.stop()

    asyncio.run(scenario())
    assert _told_in(tmp_path / "late.jsonl") == [("stop", "start"), ("stop", "finish")]
