"""Events of sandbox sessions: their shape on the wire, and what an operation tells."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from pydantic import ValidationError

import sandstream.sandbox.session as session_package
from sandstream.sandbox.errors import ErrorCode, ExecTimeoutError, SandboxError
from sandstream.sandbox.session.events import (
    EventPayloadPolicy,
    SandboxSessionEvent,
    SandboxSessionFinishEvent,
    SandboxSessionStartEvent,
    event_to_json_line,
    validate_sandbox_session_event,
)
from sandstream.sandbox.session.manager import Instrumentation, SessionEvents
from sandstream.sandbox.session.sinks import EventSink
from sandstream.sandbox.session.utils import endpoint_data, stream_length
from sandstream.sandbox.types import ExposedPortEndpoint

SESSION = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")
COMMON: dict[str, Any] = {
    "event_id": uuid.UUID("11111111-2222-4333-8444-555555555555"),
    "ts": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "session_id": SESSION,
    "span_id": "sandbox_op_1",
}
EXEC_STARTED = SandboxSessionStartEvent(
    seq=1,
    op="exec",
    data={"command": ["echo", "hé"], "timeout_s": None, "shell": True, "user": None},
    **COMMON,
)
EXEC_FAILED = SandboxSessionFinishEvent(
    seq=2,
    op="exec",
    ok=False,
    duration_ms=12.5,
    error_code=ErrorCode.EXEC_TIMEOUT,
    error_type="ExecTimeoutError",
    error_message="late",
    error_retryable=False,
    stdout_bytes=b"x",
    **COMMON,
)
WRITTEN = SandboxSessionFinishEvent(
    seq=3,
    op="write",
    ok=True,
    duration_ms=1,
    data={"path": "a.txt", "user": None, "bytes": 3},
    **COMMON,
)
# The lines that openai-agents 0.24.0 writes for the same events.
LINES = [
    r'{"data":{"command":["echo","h\u00e9"],"shell":true,"timeout_s":null,"user":null},'
    '"event_id":"11111111-2222-4333-8444-555555555555","op":"exec","parent_span_id":null,'
    '"phase":"start","seq":1,"session_id":"550e8400-e29b-41d4-a716-446655440000",'
    '"span_id":"sandbox_op_1","trace_id":null,"ts":"2026-01-02T03:04:05.678901Z","version":1}\n',
    '{"data":{},"duration_ms":12.5,"error_code":"exec_timeout","error_message":"late",'
    '"error_retryable":false,"error_type":"ExecTimeoutError",'
    '"event_id":"11111111-2222-4333-8444-555555555555","ok":false,"op":"exec",'
    '"parent_span_id":null,"phase":"finish","seq":2,'
    '"session_id":"550e8400-e29b-41d4-a716-446655440000","span_id":"sandbox_op_1","stderr":null,'
    '"stdout":null,"trace_id":null,"ts":"2026-01-02T03:04:05.678901Z","version":1}\n',
    '{"data":{"bytes":3,"path":"a.txt","user":null},"duration_ms":1.0,"error_code":null,'
    '"error_message":null,"error_retryable":null,"error_type":null,'
    '"event_id":"11111111-2222-4333-8444-555555555555","ok":true,"op":"write",'
    '"parent_span_id":null,"phase":"finish","seq":3,'
    '"session_id":"550e8400-e29b-41d4-a716-446655440000","span_id":"sandbox_op_1","stderr":null,'
    '"stdout":null,"trace_id":null,"ts":"2026-01-02T03:04:05.678901Z","version":1}\n',
]


class Recorder(EventSink):
    """Keeps what it gets."""

    def __init__(self, payload_policy: EventPayloadPolicy | None = None) -> None:
        self.payload_policy = payload_policy
        self.events: list[SandboxSessionEvent] = []

    async def handle(self, event: SandboxSessionEvent) -> None:
        self.events.append(event)

    @property
    def finished(self) -> SandboxSessionFinishEvent:
        return cast(SandboxSessionFinishEvent, self.events[-1])


def _told(sink: EventSink) -> SessionEvents:
    return SessionEvents(Instrumentation(sinks=[sink]), SESSION)


# --- shape -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "line"), list(zip([EXEC_STARTED, EXEC_FAILED, WRITTEN], LINES, strict=True))
)
def test_a_line_is_what_others_write_and_reads_back(event: SandboxSessionEvent, line: str) -> None:
    assert event_to_json_line(event) == line
    back = validate_sandbox_session_event(json.loads(line))
    assert type(back) is type(event)
    assert event_to_json_line(back) == line


def test_known_error_codes_read_back_as_codes_and_unknown_ones_as_text() -> None:
    payload = json.loads(LINES[1])
    known = validate_sandbox_session_event(payload)
    assert isinstance(known, SandboxSessionFinishEvent)
    assert known.error_code is ErrorCode.EXEC_TIMEOUT
    unknown = validate_sandbox_session_event(payload | {"error_code": "of_tomorrow"})
    assert isinstance(unknown, SandboxSessionFinishEvent)
    assert unknown.error_code == "of_tomorrow"
    assert '"error_code":"of_tomorrow"' in event_to_json_line(unknown)


@pytest.mark.parametrize("change", [{"phase": "middle"}, {"op": "dance"}, {"seq": "x"}])
def test_what_is_no_event_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        validate_sandbox_session_event(json.loads(LINES[0]) | change)


def test_policy_defaults() -> None:
    assert EventPayloadPolicy().model_dump() == {
        "include_exec_output": False,
        "max_stdout_chars": 8000,
        "max_stderr_chars": 8000,
        "include_write_len": True,
    }
    with pytest.raises(ValidationError):
        EventPayloadPolicy(max_stdout_chars=-1)


def test_the_package_exports_every_name_and_loads_nothing_before() -> None:
    assert len(session_package.__all__) == 25
    for name in session_package.__all__:
        assert getattr(session_package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        session_package.Nothing  # noqa: B018
    code = (
        "import sys, sandstream.sandbox.session\n"
        "print([it for it in sys.modules if it.startswith('sandstream.sandbox.session.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- operations --------------------------------------------------------------------------------


def test_an_operation_tells_its_start_and_its_finish() -> None:
    sink = Recorder(EventPayloadPolicy(include_exec_output=True))
    events = _told(sink)

    async def scenario() -> None:
        async with events.operation("exec", command=["ls"]) as finish:
            assert [it.phase for it in sink.events] == ["start"]
            finish.exited(3, b"out", b"")

    asyncio.run(scenario())
    start, finish = sink.events
    assert isinstance(start, SandboxSessionStartEvent)
    assert isinstance(finish, SandboxSessionFinishEvent)
    assert (start.op, start.seq, start.session_id) == ("exec", 1, SESSION)
    assert start.data == {"command": ["ls"]}
    assert finish.seq == 2
    assert finish.span_id == start.span_id
    assert finish.span_id.startswith("sandbox_op_")
    assert finish.event_id != start.event_id
    assert finish.ok is False
    assert finish.data == {"command": ["ls"], "exit_code": 3, "process.exit.code": 3}
    assert (finish.stdout, finish.stderr) == ("out", "")
    assert finish.duration_ms >= 0
    assert (finish.error_type, finish.error_code) == (None, None)


def test_a_body_replaces_the_data_of_the_finish() -> None:
    sink = Recorder()

    async def scenario() -> None:
        async with _told(sink).operation("running") as finish:
            finish.data = {"alive": True}

    asyncio.run(scenario())
    assert sink.events[0].data == {}
    assert sink.finished.data == {"alive": True}
    assert sink.finished.ok is True


def test_numbers_count_on_and_spans_differ() -> None:
    sink = Recorder()
    events = _told(sink)

    async def scenario() -> None:
        for _ in range(3):
            async with events.operation("running"):
                pass

    asyncio.run(scenario())
    assert [it.seq for it in sink.events] == [1, 2, 3, 4, 5, 6]
    assert len({it.span_id for it in sink.events}) == 3


def test_a_sandbox_error_is_told_with_its_code_and_goes_on() -> None:
    sink = Recorder(EventPayloadPolicy(include_exec_output=True))
    error = ExecTimeoutError(command=("sleep", "9"), timeout_s=1)

    async def scenario() -> None:
        async with _told(sink).operation("exec", command=["sleep", "9"]) as finish:
            finish.exited(0, b"half", b"")
            raise error

    with pytest.raises(ExecTimeoutError) as caught:
        asyncio.run(scenario())
    assert caught.value is error
    told = sink.finished
    assert told.ok is False
    assert told.error_code is ErrorCode.EXEC_TIMEOUT
    assert told.error_type == "ExecTimeoutError"
    assert told.error_message == str(error)
    assert told.error_retryable is error.retryable
    assert told.data == {"command": ["sleep", "9"]}
    assert told.stdout is None


def test_an_error_with_a_code_of_its_own_is_told() -> None:
    sink = Recorder()

    async def scenario() -> None:
        async with _told(sink).operation("stop"):
            raise SandboxError("odd", "of_tomorrow", "stop", {}, retryable=True)

    with pytest.raises(SandboxError, match="odd"):
        asyncio.run(scenario())
    assert (sink.finished.error_code, sink.finished.error_retryable) == ("of_tomorrow", True)
    assert '"error_code":"of_tomorrow"' in event_to_json_line(sink.finished)


def test_another_error_is_told_by_its_type() -> None:
    sink = Recorder()

    async def scenario() -> None:
        async with _told(sink).operation("read", path="a"):
            raise ValueError("bad path")

    with pytest.raises(ValueError, match="bad path"):
        asyncio.run(scenario())
    told = sink.finished
    assert (told.error_type, told.error_message) == ("ValueError", "bad path")
    assert (told.error_code, told.error_retryable) == (None, None)


def test_a_cancelled_operation_has_a_finish_too() -> None:
    sink = Recorder()

    async def scenario() -> None:
        began = asyncio.Event()

        async def wait_forever() -> None:
            async with _told(sink).operation("exec", command=["cat"]):
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(wait_forever())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert [it.phase for it in sink.events] == ["start", "finish"]
    assert (sink.finished.ok, sink.finished.error_type) == (False, "CancelledError")


def test_operations_inside_an_operation_are_part_of_it() -> None:
    sink = Recorder()
    events = _told(sink)
    other = SessionEvents(Instrumentation(sinks=[sink]), uuid.uuid4())

    async def scenario() -> None:
        async with events.operation("stop"):
            async with events.operation("persist_workspace"):
                pass
            async with other.operation("running"):
                pass
        async with events.operation("shutdown"):
            pass

    asyncio.run(scenario())
    assert [(it.op, it.phase) for it in sink.events] == [
        ("stop", "start"),
        ("running", "start"),
        ("running", "finish"),
        ("stop", "finish"),
        ("shutdown", "start"),
        ("shutdown", "finish"),
    ]


@pytest.mark.parametrize("instrumentation", [None, Instrumentation()])
def test_without_sinks_nothing_is_made(
    instrumentation: Instrumentation | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an event was made for nobody")

    monkeypatch.setattr(SandboxSessionStartEvent, "__init__", refuse)
    monkeypatch.setattr(SandboxSessionFinishEvent, "__init__", refuse)

    async def scenario() -> None:
        events = SessionEvents(instrumentation, SESSION)
        async with events.operation("exec", command=["ls"]) as finish:
            finish.exited(0, b"", b"")
        await events.flush()

    asyncio.run(scenario())


# --- policies ----------------------------------------------------------------------------------


def _finish_seen_by(
    sink_policy: EventPayloadPolicy | None,
    op_policy: EventPayloadPolicy | None,
    policy: EventPayloadPolicy | None = None,
) -> SandboxSessionFinishEvent:
    sink = Recorder(sink_policy)
    by_op = {"exec": op_policy} if op_policy is not None else None
    instrumentation = Instrumentation(
        sinks=[sink], payload_policy=policy, payload_policy_by_op=cast(Any, by_op)
    )

    async def scenario() -> None:
        async with SessionEvents(instrumentation, SESSION).operation("exec", bytes=7) as finish:
            finish.exited(0, "hello wörld".encode(), b"\xffoops")

    asyncio.run(scenario())
    return sink.finished


def test_output_stays_out_by_default_and_lengths_stay_in() -> None:
    seen = _finish_seen_by(None, None)
    assert (seen.stdout, seen.stderr, seen.stdout_bytes, seen.stderr_bytes) == (None,) * 4
    assert seen.data["bytes"] == 7


def test_output_is_decoded_and_cut_by_characters() -> None:
    policy = EventPayloadPolicy(include_exec_output=True, max_stdout_chars=8, max_stderr_chars=5)
    seen = _finish_seen_by(None, None, policy)
    assert seen.stdout == "hello wö…"
    assert seen.stderr == "\ufffdoops"


def test_lengths_are_left_out_on_request() -> None:
    seen = _finish_seen_by(EventPayloadPolicy(include_write_len=False), None)
    assert "bytes" not in seen.data


def test_overrides_change_only_what_they_set() -> None:
    wide = EventPayloadPolicy(include_exec_output=True, max_stdout_chars=4)
    seen = _finish_seen_by(EventPayloadPolicy(max_stderr_chars=1), wide)
    assert seen.stdout == "hell…"  # from the operation's policy, which the sink's leaves alone
    assert seen.stderr == "\ufffd…"
    closed = _finish_seen_by(EventPayloadPolicy(include_exec_output=False), wide)
    assert closed.stdout is None


def test_each_sink_gets_a_copy_of_its_own() -> None:
    open_sink = Recorder(EventPayloadPolicy(include_exec_output=True))
    closed_sink = Recorder(EventPayloadPolicy(include_write_len=False))
    instrumentation = Instrumentation(sinks=[closed_sink, open_sink])

    async def scenario() -> None:
        async with SessionEvents(instrumentation, SESSION).operation("exec", bytes=1) as finish:
            finish.exited(0, b"secret", b"")

    asyncio.run(scenario())
    assert closed_sink.finished.stdout is None
    assert "bytes" not in closed_sink.finished.data
    assert open_sink.finished.stdout == "secret"
    assert open_sink.finished.data["bytes"] == 1
    assert closed_sink.finished.event_id == open_sink.finished.event_id


# --- facts -------------------------------------------------------------------------------------


def test_the_length_of_a_stream_is_what_is_left_of_it() -> None:
    stream = io.BytesIO(b"abcdef")
    stream.seek(2)
    assert stream_length(stream) == 4
    assert stream.read() == b"cdef"


def test_a_stream_that_cannot_seek_has_no_length_and_loses_nothing() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"abc")
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert stream_length(cast(io.IOBase, stream)) is None
        assert stream.read() == b"abc"
    assert stream_length(cast(io.IOBase, stream)) is None  # closed


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("10.0.0.7", False),
        ("token-123.sandbox.example", False),
    ],
)
def test_only_hosts_of_this_machine_are_named(host: str, told: bool) -> None:
    data = endpoint_data(ExposedPortEndpoint(host=host, port=8123))
    address: dict[str, object] = {"server.address": host} if told else {}
    assert data == {"server.port": 8123, **address}
