"""Nests the conversation before a handoff in summaries, so that the next agent reads it as past.

``transcript.py`` writes and parses the transcript; this module decides what is summarized and what
the next agent gets verbatim. Nesting hides nothing: summaries contain the inputs and outputs of
tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy

from sandstream_actors.model.vendor_types import plain

from sandstream.handoffs.handoff import HandoffHistoryMapper, HandoffInputData
from sandstream.handoffs.transcript import (
    Markers,
    flattened,
    summary_message,
    without_metadata,
)
from sandstream.items import ItemHelpers, RunItem, ToolApprovalItem, TResponseInputItem

__all__ = [
    "default_handoff_history_mapper",
    "get_conversation_history_wrappers",
    "nest_handoff_history",
    "reset_conversation_history_wrappers",
    "set_conversation_history_wrappers",
]

_DEFAULT_MARKERS: Markers = ("<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>")
_markers = _DEFAULT_MARKERS

_FOLDED_TYPES = ("function_call", "function_call_output", "reasoning")
"""Endpoints accept these only with their counterparts, which may be in a summary."""


def set_conversation_history_wrappers(*, start: str | None = None, end: str | None = None) -> None:
    """Change the lines around a summary, in this process; ``None`` leaves a line unchanged.

    Args:
        start: The line before a summary.
        end: The line after a summary.
    """
    global _markers
    _markers = (_markers[0] if start is None else start, _markers[1] if end is None else end)


def reset_conversation_history_wrappers() -> None:
    """Restore the markers ``<CONVERSATION HISTORY>`` and ``</CONVERSATION HISTORY>``."""
    global _markers
    _markers = _DEFAULT_MARKERS


def get_conversation_history_wrappers() -> tuple[str, str]:
    """The lines before and after a summary."""
    return _markers


def default_handoff_history_mapper(
    transcript: list[TResponseInputItem],
) -> list[TResponseInputItem]:
    """The whole transcript as one assistant message.

    Args:
        transcript: The conversation as input items, oldest first.
    """
    return [summary_message(transcript, _markers)]


def nest_handoff_history(
    handoff_input_data: HandoffInputData, *, history_mapper: HandoffHistoryMapper | None = None
) -> HandoffInputData:
    """Nest the conversation: all of the next agent's input is then in ``input_history``.

    ``new_items`` are unchanged, for the result and a session. ``input_items`` are ignored, so
    filter the other parts if something must not reach the next agent.

    Args:
        handoff_input_data: The conversation at the handoff. It is not changed.
        history_mapper: Makes the next agent's whole input of the conversation; ``None`` puts what
            happened before into summaries and keeps the messages of this turn.

    Returns:
        A copy with the nested conversation.
    """
    history = handoff_input_data.input_history
    before = flattened(ItemHelpers.input_to_new_input_list(history), _markers)
    produced = [
        *_with_verdict(handoff_input_data.pre_handoff_items, of_this_turn=False),
        *_with_verdict(handoff_input_data.new_items, of_this_turn=True),
    ]
    if history_mapper is None:
        nested = _folded(before, produced)
    else:
        nested = history_mapper(before + [item for item, _ in produced])
    return handoff_input_data.clone(
        input_history=tuple(deepcopy(item) for item in nested),
        pre_handoff_items=(),
        input_items=(),
    )


def _with_verdict(
    items: tuple[RunItem, ...], *, of_this_turn: bool
) -> Iterator[tuple[TResponseInputItem, bool]]:
    """Each item as input, and whether the next agent gets it verbatim."""
    for item in items:
        if not isinstance(item, ToolApprovalItem):
            as_input = _as_input(item)
            yield as_input, _stays_verbatim(as_input, of_this_turn=of_this_turn)


def _as_input(item: RunItem) -> TResponseInputItem:
    # through the vendor's type, so that a summary has its fields in the vendor's order
    result = without_metadata(deepcopy(plain(item.raw_item)))
    if result.get("status") is None:
        result.pop("status", None)
    return result


def _stays_verbatim(item: TResponseInputItem, *, of_this_turn: bool) -> bool:
    if _is_part_of_a_program(item):
        return False
    role = item.get("role")
    if of_this_turn and isinstance(role, str) and role:
        return True
    return role != "assistant" and item.get("type") not in _FOLDED_TYPES


def _is_part_of_a_program(item: TResponseInputItem) -> bool:
    """Whether the item belongs to a hosted program, whose parts make no sense alone."""
    caller = item.get("caller")
    kind = caller.get("type") if isinstance(caller, Mapping) else getattr(caller, "type", None)
    return kind == "program" or item.get("type") in ("program", "program_output")


def _folded(
    before: list[TResponseInputItem], produced: list[tuple[TResponseInputItem, bool]]
) -> list[TResponseInputItem]:
    """Summaries with the verbatim items between them, in the order of the conversation."""
    result: list[TResponseInputItem] = []
    pending = list(before)
    for item, stays_verbatim in produced:
        if not stays_verbatim:
            pending.append(item)
            continue
        if pending or not result:
            result.extend(default_handoff_history_mapper(pending))
            pending = []
        result.append(item)
    if pending or not result:
        result.extend(default_handoff_history_mapper(pending))
    return result
