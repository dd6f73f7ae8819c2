"""Talk to an agent in the terminal, for a first look at it."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

from sandstream.items import ItemHelpers, ToolCallOutputItem, TResponseInputItem
from sandstream.run_config import DEFAULT_MAX_TURNS
from sandstream.runner import Runner
from sandstream.stream_events import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StreamEvent,
)

if TYPE_CHECKING:
    from sandstream.agent import Agent
    from sandstream.result import RunResultBase

_ENDS = ("exit", "quit")


async def run_demo_loop(
    agent: Agent[Any],
    *,
    stream: bool = True,
    context: Any | None = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
) -> None:
    """Let the agent answer each input line, until ``exit``, ``quit`` or the end of the input.

    The conversation continues from line to line, with the agent that answered last.

    Args:
        agent: The first agent.
        stream: Print the text while the model writes it.
        context: Your own object for tools, hooks and guardrails.
        max_turns: How many model calls each answer may take; ``None`` removes the limit.

    Example:
        asyncio.run(run_demo_loop(Agent(name="Assistant", instructions="Be brief.")))
    """
    said: list[TResponseInputItem] = []
    while True:
        try:
            line = await _line(" > ")
        except (EOFError, KeyboardInterrupt):
            _write("\n")
            return
        if line.strip().lower() in _ENDS:
            return
        if not line:
            continue
        said += ItemHelpers.input_to_new_input_list(line)
        result: RunResultBase
        if stream:
            streamed = Runner.run_streamed(agent, said, context=context, max_turns=max_turns)
            async for event in streamed.stream_events():
                _write(_shown(event))
            _write("\n")
            result = streamed
        else:
            result = await Runner.run(agent, said, context=context, max_turns=max_turns)
            if result.final_output is not None:
                _write(f"{result.final_output}\n")
        agent = result.last_agent
        said = result.to_input_list()


def _shown(event: StreamEvent) -> str:
    """The text to print for a stream event."""
    match event:
        case RawResponsesStreamEvent() if event.data.type == "response.output_text.delta":
            return str(event.data.delta)
        case RunItemStreamEvent(name="tool_called"):
            return "\n[tool called]\n"
        case RunItemStreamEvent(item=ToolCallOutputItem() as item):
            return f"\n[tool output: {item.output}]\n"
        case AgentUpdatedStreamEvent():
            return f"\n[Agent updated: {event.new_agent.name}]\n"
        case _:
            return ""


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _line(prompt: str) -> str:
    """Read a line without blocking the loop; the thread does not keep the program alive."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def settle(line: str, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(line)
        else:
            answer.set_exception(error)

    def read() -> None:
        line, error = "", None
        try:
            line = input(prompt)
        except BaseException as raised:  # noqa: BLE001  passed to the waiting caller
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, line, error)

    threading.Thread(target=read, name="input", daemon=True).start()
    return await answer
