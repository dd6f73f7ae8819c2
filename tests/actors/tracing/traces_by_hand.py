"""Facts and spans made by hand, for the tests of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Attributes, Span
from sandstream_actors.tracing.store.trace_store import TraceStore

SECOND = 1_000_000_000
DAY = 86_400 * SECOND


def facts(run: str = "r1", **more: Any) -> RunFacts:
    """A run that has completed, if nothing else is said."""
    values: dict[str, Any] = {
        "run": run,
        "trace_id": f"trace-{run}",
        "root": run,
        "agent": "assistant",
        "first_agent": "assistant",
        "status": "completed",
        "started_ns": 10 * SECOND,
        "ended_ns": 12 * SECOND,
        "turns": 1,
        "last_seq": 9,
    }
    return RunFacts(**(values | more))


def span(run: str = "r1", number: int = 1, **more: Any) -> Span:
    """A span that took a second."""
    values: dict[str, Any] = {
        "trace_id": f"trace-{run}",
        "span_id": f"{run}-{number}",
        "name": "invoke_agent assistant",
        "operation": "agent",
        "run": run,
        "agent": "assistant",
        "start_ns": (10 + number) * SECOND,
        "end_ns": (11 + number) * SECOND,
        "first_seq": number,
        "last_seq": number + 1,
    }
    return Span(**(values | more))


def chat(run: str, number: int, model: str = "gpt-5", **more: Any) -> Span:
    attributes: Attributes = {
        semconv.REQUEST_MODEL: model,
        semconv.INPUT_TOKENS: 100,
        semconv.OUTPUT_TOKENS: 10,
    }
    values: dict[str, Any] = {
        "name": f"chat {model}",
        "operation": "chat",
        "kind": "client",
        "attributes": attributes | more.pop("attributes", {}),
    }
    return span(run, number, **(values | more))


def tool(run: str, number: int, name: str = "get_weather", **more: Any) -> Span:
    values: dict[str, Any] = {
        "name": f"execute_tool {name}",
        "operation": "tool",
        "attributes": {semconv.TOOL_NAME: name},
    }
    return span(run, number, **(values | more))


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[TraceStore]:
    store = await TraceStore.open(path, **options)
    try:
        yield store
    finally:
        await store.close()
