"""Fills a server's log with realistic runs, fast: finished ones, and some that are still open.

python benchmarks/past_log.py nats://127.0.0.1:4222 --events 1000000 [--running 150] [--waiting 150]

The streams must exist. Messages are encoded once, get their run's id by replacement, and are
pipelined over one socket with a bounded number of unacknowledged publishes: about half a minute
per million events. The runs belong to the pool ``past``, which has no actors, so nothing works on
them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw
from sandstream_bus.logs.codec import encode
from sandstream_bus.wire.messages import (
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ErrorInfo,
    Message,
    ModelAnswered,
    RunDone,
    RunStarted,
    RunWaiting,
    TokenUsage,
)
from sandstream_bus.wire.open_runs import OpenRun, Question
from sandstream_bus.wire.specs import AgentSpec, GraphSpec, ToolSpec

POOL = "past"
FINISHED_EVENTS = 6
"""A finished run: start, answer, call, result, answer, end."""
_UNACKED = 4000
_LANES = 64
_ID = b"past-0000000"
_USAGE = TokenUsage(requests=1, input_tokens=900, output_tokens=40, total_tokens=940)


class _Template(NamedTuple):
    """One event, with ``_ID`` in place of the run's id."""

    kind: bytes
    body: bytes


class PastRun(NamedTuple):
    """A run to write: its id and its events."""

    run: bytes
    events: list[_Template]


class Filled(NamedTuple):
    """What was written."""

    events: int
    finished: int
    running: list[str]
    waiting: list[str]
    took_s: float


async def fill(
    url: str,
    events: int,
    *,
    first: int = 0,
    running: int = 0,
    waiting: int = 0,
    prefix: str = "sandstream",
    user: str = "",
    password: str = "",
) -> Filled:
    """Write about this many events; ``running`` and ``waiting`` runs are spread evenly over them.

    Run ids are ``past-0000000`` and so on from ``first``. Returns once all are acknowledged.
    """
    began = time.monotonic()
    runs = list(_runs(events, first, running, waiting))
    link = await _Link.open(url, user, password)
    try:
        written = 0
        for event in _interleaved(runs, prefix.encode()):
            await link.publish(*event)
            written += 1
        for entry in _entries(runs, prefix.encode()):
            await link.publish(*entry)
        await link.drain()
    finally:
        link.close()
    return Filled(
        written,
        sum(run.events is not _RUNNING and run.events is not _WAITING for run in runs),
        [run.run.decode() for run in runs if run.events is _RUNNING],
        [run.run.decode() for run in runs if run.events is _WAITING],
        time.monotonic() - began,
    )


# --- the events of the runs -----------------------------------------------------------------------


def _runs(events: int, first: int, running: int, waiting: int) -> Iterator[PastRun]:
    count = max(1, events // FINISHED_EVENTS)
    number = first
    for index in range(count):
        yield PastRun(b"past-%07d" % number, _FAILED if index % 50 == 49 else _FINISHED)
        number += 1
        for kind, wanted in ((_RUNNING, running), (_WAITING, waiting)):
            for _ in range(index * wanted // count, (index + 1) * wanted // count):
                yield PastRun(b"past-%07d" % number, kind)
                number += 1


def _interleaved(runs: list[PastRun], prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Subject, message id and body of each event; several runs are always interleaved."""
    for start in range(0, len(runs), _LANES):
        lanes = runs[start : start + _LANES]
        for step in range(FINISHED_EVENTS):
            for lane in lanes:
                if step < len(lane.events):
                    event = lane.events[step]
                    subject = b"%b.run.%b.%b" % (prefix, lane.run, event.kind)
                    msg_id = b"%b:%d" % (lane.run, step)
                    yield subject, msg_id, event.body.replace(_ID, lane.run)


def _entries(runs: list[PastRun], prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Subject, message id and body of the entries in the index of open runs."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    question = Question(asked=_QUESTION, since=now)
    running = encode(OpenRun(agent="past", pool=POOL))
    waiting = encode(OpenRun(agent="past", pool=POOL, waited=True, at=1, questions=[question]))
    for run in runs:
        if run.events is _RUNNING or run.events is _WAITING:
            body = waiting if run.events is _WAITING else running
            subject = b"%b.open.%b" % (prefix, run.run)
            yield subject, b"%b:open" % run.run, body.replace(_ID, run.run)


def _template(kind: str, message: Message) -> _Template:
    return _Template(kind.encode(), encode(message))


def _item(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _said(text: str) -> Raw:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return _item(
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    )


def _asked(call_id: str) -> Raw:
    return _item(
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": call_id,
            "name": "look_up",
            "arguments": '{"order": "past-0000000"}',
            "status": "completed",
        }
    )


_TOOL = ToolSpec(
    name="look_up",
    definition=_item(
        {
            "type": "function",
            "name": "look_up",
            "description": "Looks an order up in the shop's database.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "string"}},
                "required": ["order"],
                "additionalProperties": False,
            },
        }
    ),
    approval="always",
)
_AGENT = AgentSpec(
    name="past",
    instructions="You answer questions about orders. " * 12,
    tools=[_TOOL],
    host=POOL,
    model="gpt-4.1",
)
_START = _template(
    f"start.{POOL}",
    RunStarted(
        graph=GraphSpec(start="past", agents={"past": _AGENT}),
        input=[_item({"role": "user", "content": "Where is the order of past-0000000?"})],
        pool=POOL,
        key="past-0000000",
        is_text=True,
    ),
)
_ANSWER = _template(
    "model",
    ModelAnswered(
        turn=1,
        agent="past",
        output=[_asked("call_1")],
        usage=_USAGE,
        model="gpt-4.1",
        response_id="resp_1",
        duration_ms=800,
    ),
)
_CALL = _template(
    f"call.{POOL}",
    CallRequested(
        call="t1-0",
        kind="tool",
        turn=1,
        agent="past",
        name="look_up",
        call_id="call_1",
        arguments='{"order": "past-0000000"}',
        reply_pool=POOL,
    ),
)
_RESULT = _template(
    f"result.{POOL}",
    CallFinished(
        call="t1-0", kind="tool", turn=1, output=_item("sent on Monday, " * 20), duration_ms=12
    ),
)
_LAST_ANSWER = _template(
    "model",
    ModelAnswered(
        turn=2,
        agent="past",
        output=[_said("It was sent on Monday. " * 8)],
        usage=_USAGE,
        model="gpt-4.1",
        response_id="resp_2",
        duration_ms=900,
    ),
)
_END = _template(
    "done",
    RunDone(
        status="completed",
        agent="past",
        turns=2,
        usage=_USAGE,
        output=_item("It was sent on Monday. " * 8),
    ),
)
_BAD_END = _template(
    "done",
    RunDone(
        status="failed",
        agent="past",
        turns=2,
        usage=_USAGE,
        error=ErrorInfo(code="model_behavior", message="the model's answer is no JSON"),
    ),
)
_QUESTION = ApprovalRequested(
    call="t1-0",
    turn=1,
    agent="past",
    name="look_up",
    call_id="call_1",
    arguments='{"order": "past-0000000"}',
)
_FINISHED = [_START, _ANSWER, _CALL, _RESULT, _LAST_ANSWER, _END]
_FAILED = [_START, _ANSWER, _CALL, _RESULT, _LAST_ANSWER, _BAD_END]
_RUNNING = [_START, _ANSWER, _CALL]
_WAITING = [
    _START,
    _ANSWER,
    _template("approval.requested", _QUESTION),
    _template("waiting", RunWaiting(turn=1, approvals=[_QUESTION])),
]


# --- a fast connection to the server --------------------------------------------------------------


class _Link:
    """A minimal NATS client: publish with a header, count the acknowledgements."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._inbox = b"_INBOX.past-%d-%d" % (os.getpid(), time.monotonic_ns())
        self._unacked = 0
        self._acked = asyncio.Event()
        self._refused = ""
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str, user: str, password: str) -> _Link:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port or 4222)
        link = cls(reader, writer)
        await reader.readline()  # INFO
        options = {"verbose": False, "headers": True, "lang": "python", "version": "0"}
        if user or where.username:
            options |= {"user": user or where.username, "pass": password or where.password}
        writer.write(b"CONNECT %b\r\nSUB %b 1\r\n" % (msgspec.json.encode(options), link._inbox))
        link._listener = asyncio.create_task(link._listen())
        return link

    async def publish(self, subject: bytes, msg_id: bytes, body: bytes) -> None:
        while self._unacked >= _UNACKED:
            await self._next_ack()
        self._unacked += 1
        head = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % msg_id
        self._writer.write(
            b"HPUB %b %b %d %d\r\n%b%b\r\n"
            % (subject, self._inbox, len(head), len(head) + len(body), head, body)
        )
        if self._unacked % 500 == 0:
            await self._writer.drain()

    async def drain(self) -> None:
        await self._writer.drain()
        while self._unacked:
            await self._next_ack()

    async def _next_ack(self) -> None:
        assert self._listener is not None
        self._acked.clear()
        waiting = asyncio.ensure_future(self._acked.wait())
        await asyncio.wait({waiting, self._listener}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._listener.done():
            self._listener.result()
            raise RuntimeError("the server closed the connection")
        if self._refused:
            raise RuntimeError(f"the server refused an event: {self._refused}")

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            if line.startswith((b"MSG ", b"HMSG ")):
                body = await self._reader.readexactly(int(line.split()[-1]) + 2)
                if b'"error"' in body or line.startswith(b"HMSG"):  # HMSG: no responders
                    self._refused = body.decode("utf-8", "replace").strip()
                self._unacked -= 1
                self._acked.set()
            elif line.startswith(b"PING"):
                self._writer.write(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise RuntimeError(line.decode().strip())

    def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        self._writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--running", type=int, default=0)
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--prefix", default="sandstream")
    asked = parser.parse_args()
    filled = asyncio.run(
        fill(
            asked.url,
            asked.events,
            first=asked.first,
            running=asked.running,
            waiting=asked.waiting,
            prefix=asked.prefix,
        )
    )
    print(
        f"{filled.events} events: {filled.finished} finished runs, {len(filled.running)} running, "
        f"{len(filled.waiting)} waiting; {filled.took_s:.1f} s"
    )


if __name__ == "__main__":
    main()
