"""Small events of runs, as literals for tests."""

from __future__ import annotations

import uuid

from msgspec import Raw
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    GraphSpec,
    RunDone,
    RunStarted,
    TokenUsage,
)
from sandstream_bus.wire.specs import AgentSpec
from sandstream_bus.wire.subjects import RunId


def new_run() -> RunId:
    return RunId("run-" + uuid.uuid4().hex[:12])


def started(text: str = "hello") -> RunStarted:
    agent = AgentSpec(name="a", host="h", model="m")
    return RunStarted(
        pool="main",
        graph=GraphSpec(start="a", agents={"a": agent}),
        input=[Raw(b'{"role":"user","content":"%s"}' % text.encode())],
    )


def call(number: int, *, arguments: str = "{}") -> CallRequested:
    return CallRequested(
        reply_pool="main",
        call=f"t1-{number}",
        kind="tool",
        turn=1,
        agent="a",
        name="f",
        arguments=arguments,
    )


def finished(number: int, output: bytes = b'"ok"') -> CallFinished:
    return CallFinished(call=f"t1-{number}", kind="tool", turn=1, output=Raw(output))


def done(output: bytes = b'"end"') -> RunDone:
    return RunDone(status="completed", agent="a", turns=1, usage=TokenUsage(), output=Raw(output))
