"""Converts items of a run to data and back, for handoff filters that rewrite them in the log.

The reader of a log reuses items that it already has instead of making new ones. So they keep what
data cannot represent, such as the value that a tool returned in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.wire.messages import ItemRecord
from sandstream_bus.wire.specs import NO_JSON

from sandstream._surface.json_values import as_json
from sandstream.agent import Agent
from sandstream.items import (
    HandoffCallItem,
    HandoffOutputItem,
    InputItem,
    MessageOutputItem,
    ReasoningItem,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
    TResponseInputItem,
)

FindAgent = Callable[[str], Agent[Any]]
"""Finds the agent object for an agent's key in the run."""

_encode = msgspec.json.encode


def input_of(items: Iterable[RunItem]) -> list[TResponseInputItem]:
    """Items as model input; approval items are left out."""
    return [item.to_input_item() for item in items if not isinstance(item, ToolApprovalItem)]


def record_of(
    item: RunItem, key_of: Callable[[Agent[Any]], str], *, in_input: bool = False
) -> ItemRecord:
    """An item as data. ``key_of`` returns an agent's key in the run."""
    output, source, target = NO_JSON, "", ""
    if isinstance(item, ToolCallOutputItem):
        output = as_json(item.output)
    elif isinstance(item, HandoffOutputItem):
        source, target = key_of(item.source_agent), key_of(item.target_agent)
    return ItemRecord(
        kind=item.type,
        agent=key_of(item.agent),
        raw=Raw(_encode(item.plain_item())),
        output=output,
        source=source,
        target=target,
        in_input=in_input,
    )


def items_of_records(
    records: Sequence[ItemRecord], known: Iterable[RunItem], find: FindAgent
) -> list[RunItem]:
    """Records as items; known items are reused."""
    stock = _Stock(known)
    return [
        stock.take(record.kind, msgspec.json.decode(record.raw)) or _made(record, find)
        for record in records
    ]


def items_of_input(
    items: Sequence[Raw], known: Iterable[RunItem], agent: Agent[Any]
) -> list[RunItem]:
    """Model input as the items it was made of; unknown ones become items of ``agent``."""
    stock = _Stock(known)
    found: list[RunItem] = []
    for item in items:
        raw = msgspec.json.decode(item)
        found.append(stock.take("", raw) or _of_input(raw, agent))
    return found


class _Stock:
    """Known items, each of which can be taken once."""

    def __init__(self, items: Iterable[RunItem]) -> None:
        distinct = {id(item): item for item in items}.values()
        self._left = [(item, item.plain_item()) for item in distinct]

    def take(self, kind: str, raw: Any) -> RunItem | None:
        for place, (item, known) in enumerate(self._left):
            wanted = item.type == kind if kind else not isinstance(item, ToolApprovalItem)
            if wanted and known == raw:
                del self._left[place]
                return item
        return None


def _made(record: ItemRecord, find: FindAgent) -> RunItem:
    raw = msgspec.json.decode(record.raw)
    agent = find(record.agent)
    match record.kind:
        case "tool_call_output_item":
            output = msgspec.json.decode(record.output) if record.output else raw.get("output")
            return ToolCallOutputItem(agent, raw, output)
        case "handoff_output_item":
            return HandoffOutputItem(agent, raw, find(record.source), find(record.target))
        case kind:
            return _PLAIN.get(kind, InputItem)(agent, raw)


_PLAIN: dict[str, Callable[[Agent[Any], Any], RunItem]] = {
    item.type: item
    for item in (
        InputItem,
        MessageOutputItem,
        ReasoningItem,
        ToolCallItem,
        HandoffCallItem,
        ToolApprovalItem,
    )
}


def _of_input(raw: Any, agent: Agent[Any]) -> RunItem:
    kind = str(raw.get("type", ""))
    if kind.endswith("_output"):
        return ToolCallOutputItem(agent, raw, raw.get("output"))
    if kind.endswith("_call"):
        return ToolCallItem(agent, raw)
    if kind == "reasoning":
        return ReasoningItem(agent, raw)
    if kind == "message" and raw.get("role") == "assistant":
        return MessageOutputItem(agent, raw)
    return InputItem(agent, raw)
