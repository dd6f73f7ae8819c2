"""Hand-written logs of runs, for the pure parts of the harness."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import Stored
from sandstream_bus.wire.messages import (
    CallFinished,
    CallKind,
    CallRequested,
    ErrorInfo,
    ModelAnswered,
    RunEvent,
    RunStarted,
    TokenUsage,
)
from sandstream_bus.wire.specs import AgentSpec, GraphSpec, RunOptions, ToolSpec
from sandstream_bus.wire.subjects import RunId

RUN = RunId("r")
USAGE = TokenUsage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def begin(
    *tools: str | ToolSpec, options: dict[str, Any] | None = None, **agent: Any
) -> RunStarted:
    """A run of agent ``a`` with these tools."""
    specs = [
        tool
        if isinstance(tool, ToolSpec)
        else ToolSpec(name=tool, definition=raw({"type": "function", "name": tool}))
        for tool in tools
    ]
    spec = AgentSpec(**({"name": "a", "host": "h", "model": "m", "tools": specs} | agent))
    other = AgentSpec(name="b", host="h2", model="m2")
    return RunStarted(
        pool="main",
        graph=GraphSpec(start="a", agents={"a": spec, "b": other}),
        input=[raw({"role": "user", "content": "hi"})],
        options=RunOptions(**(options or {})),
    )


def says(text: str) -> Raw:
    return raw({"type": "message", "content": [{"type": "output_text", "text": text}]})


def refuses(text: str) -> Raw:
    return raw({"type": "message", "content": [{"type": "refusal", "refusal": text}]})


def calls(name: str, call_id: str, arguments: str = "{}") -> Raw:
    item = {"type": "function_call", "name": name, "call_id": call_id, "arguments": arguments}
    return raw(item)


def answer(turn: int, *items: Raw, agent: str = "a", **more: Any) -> ModelAnswered:
    return ModelAnswered(turn=turn, agent=agent, output=list(items), usage=USAGE, **more)


def asks(call: str, kind: CallKind = "tool", turn: int = 1) -> CallRequested:
    return CallRequested(call=call, kind=kind, turn=turn, agent="a", reply_pool="main")


def ends(
    call: str,
    output: object = "ok",
    *,
    kind: CallKind = "tool",
    turn: int = 1,
    value: object = None,
    error: ErrorInfo | None = None,
) -> CallFinished:
    return CallFinished(
        call=call,
        kind=kind,
        turn=turn,
        output=Raw() if output is None else raw(output),
        value=Raw() if value is None else raw(value),
        error=error,
    )


def log(*events: RunEvent, first: int = 1) -> list[LogEvent]:
    """The events with the sequences ``first``, ``first + 1`` …"""
    return [
        LogEvent(sequence, f"s.{sequence}", event, Stored(sequence, f"s.{sequence}", b"", {}))
        for sequence, event in enumerate(events, first)
    ]
