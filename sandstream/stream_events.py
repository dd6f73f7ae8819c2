"""The events of a streamed run."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from sandstream_actors.model.vendor_types import typed_event

from sandstream.items import (
    HandoffCallItem,
    HandoffOutputItem,
    MessageOutputItem,
    ReasoningItem,
    RunItem,
    ToolCallItem,
    ToolCallOutputItem,
)

if TYPE_CHECKING:
    from sandstream.agent import Agent

RunItemEventName = Literal[
    "message_output_created",
    "tool_called",
    "tool_output",
    "reasoning_item_created",
    "handoff_requested",
    "handoff_occured",
    "tool_search_called",
    "tool_search_output_created",
    "mcp_approval_requested",
    "mcp_approval_response",
    "mcp_list_tools",
]


class RawResponsesStreamEvent:
    """One stream event of the model. ``data`` is converted to the vendor's type on first access.

    Args:
        raw: The event as JSON, as the model's endpoint sent it.
    """

    type: ClassVar[Literal["raw_response_event"]] = "raw_response_event"

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @cached_property
    def data(self) -> Any:
        return typed_event(msgspec.json.decode(self._raw))

    def __repr__(self) -> str:
        return f"RawResponsesStreamEvent({self._raw!r})"


class RunItemStreamEvent:
    """A finished item of the run.

    Args:
        name: What happened, for example ``tool_called``.
        item: The item that is now part of the run.
    """

    type: ClassVar[Literal["run_item_stream_event"]] = "run_item_stream_event"

    def __init__(self, name: RunItemEventName, item: RunItem) -> None:
        self.name = name
        self.item = item

    def __repr__(self) -> str:
        return f"RunItemStreamEvent(name={self.name!r}, item={self.item!r})"


class AgentUpdatedStreamEvent:
    """Another agent took over; also the first event of a run.

    Args:
        new_agent: The agent that takes the next turn.
    """

    type: ClassVar[Literal["agent_updated_stream_event"]] = "agent_updated_stream_event"

    def __init__(self, new_agent: Agent[Any]) -> None:
        self.new_agent = new_agent

    def __repr__(self) -> str:
        return f"AgentUpdatedStreamEvent(new_agent={self.new_agent.name!r})"


_NAMES: dict[type[RunItem], RunItemEventName] = {
    MessageOutputItem: "message_output_created",
    ReasoningItem: "reasoning_item_created",
    ToolCallItem: "tool_called",
    ToolCallOutputItem: "tool_output",
    HandoffCallItem: "handoff_requested",
    HandoffOutputItem: "handoff_occured",
}


def event_of(item: RunItem) -> list[RunItemStreamEvent]:
    """The stream event for an item; input and approval items have none."""
    name = _NAMES.get(type(item))
    return [RunItemStreamEvent(name, item)] if name else []


StreamEvent = RawResponsesStreamEvent | RunItemStreamEvent | AgentUpdatedStreamEvent
