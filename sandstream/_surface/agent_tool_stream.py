"""The events of an agent as a tool, passed to its ``on_stream`` while the agent runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypedDict

from sandstream._surface.task_ends import stop
from sandstream.exceptions import AgentsException
from sandstream.stream_events import AgentUpdatedStreamEvent, StreamEvent

if TYPE_CHECKING:
    from sandstream.agent import Agent

__all__ = ["AgentToolStreamEvent", "OnStream", "StreamOverflow", "feed"]

logger = logging.getLogger(__name__)


class AgentToolStreamEvent(TypedDict):
    """The argument of ``on_stream``: an event, its agent, and the tool call of the run."""

    event: StreamEvent
    """The event of the child run."""
    agent: Agent[Any]
    """The agent that the child run has reached."""
    tool_call: Any | None
    """The call of the tool that started the child run; ``None`` outside a run."""


OnStream = Callable[[AgentToolStreamEvent], Awaitable[None] | None]


class StreamOverflow(AgentsException):
    """``on_stream`` is slower than the agent, and too many events wait for it."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"more than {limit} events wait for on_stream: make it faster, or raise "
            "on_stream_max_pending_events (None: no limit)"
        )


async def feed(
    on_stream: OnStream,
    limit: int | None,
    events: AsyncIterator[StreamEvent],
    agent: Agent[Any],
    tool_call: Any | None,
) -> None:
    """Call ``on_stream`` with each event, in order. It does not delay the agent: up to ``limit``
    events are queued.

    Raises:
        StreamOverflow: if the queue is full. Queued events are dropped.
    """
    queue: asyncio.Queue[AgentToolStreamEvent | None] = asyncio.Queue()
    consumer = asyncio.ensure_future(_consume(on_stream, queue))
    try:
        try:
            async for event in events:
                if isinstance(event, AgentUpdatedStreamEvent):
                    agent = event.new_agent
                if limit is not None and queue.qsize() >= limit:
                    await asyncio.sleep(0)  # events may come in a burst: let the callback catch up
                    if queue.qsize() >= limit:
                        raise StreamOverflow(limit)
                queue.put_nowait({"event": event, "agent": agent, "tool_call": tool_call})
        except (StreamOverflow, asyncio.CancelledError):
            raise
        except Exception:
            queue.put_nowait(None)
            await consumer  # pass on the events from before the failure
            raise
        queue.put_nowait(None)
        await consumer
    finally:
        await stop([consumer])


async def _consume(on_stream: OnStream, queue: asyncio.Queue[AgentToolStreamEvent | None]) -> None:
    while (payload := await queue.get()) is not None:
        try:
            handled = on_stream(payload)
            if inspect.isawaitable(handled):
                await handled
        except Exception:
            logger.exception("on_stream failed", extra={"agent": payload["agent"].name})
